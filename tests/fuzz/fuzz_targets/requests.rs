#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| fv_tests::fuzzing::requests(bytes));
