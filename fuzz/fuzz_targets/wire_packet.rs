//! See `feroce_fuzz::wire_packet`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::wire_packet::run(input);
});
