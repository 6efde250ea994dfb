//! See `feroce_fuzz::slot_message`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::slot_message::run(input);
});
