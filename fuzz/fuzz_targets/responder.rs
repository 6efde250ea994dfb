//! See `feroce_fuzz::responder`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::responder::run(input);
});
