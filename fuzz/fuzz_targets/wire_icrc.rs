//! See `feroce_fuzz::wire_icrc`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::wire_icrc::run(input);
});
