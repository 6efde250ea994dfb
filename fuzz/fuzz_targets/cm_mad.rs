//! See `feroce_fuzz::cm_mad`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::cm_mad::run(input);
});
