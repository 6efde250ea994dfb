//! See `feroce_fuzz::mem_table`.
#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| {
    feroce_fuzz::mem_table::run(input);
});
