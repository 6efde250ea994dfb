//! See `feroce_fuzz::capture`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::capture::run(input);
});
