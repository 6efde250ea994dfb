//! See `feroce_fuzz::lossy_spec`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::lossy_spec::run(input);
});
