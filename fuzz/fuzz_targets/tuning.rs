//! Any bytes as the tuning beside a model: a tuning that comes back as it was written, or an error.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use selfspec_engine::Tuning;

fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz.tuning.json");
    match Tuning::parse(data, path) {
        Ok(tuning) => {
            let _ = tuning.speculation(6); // its layers may not fit
            let text = serde_json::to_vec(&tuning).expect("plain data");
            let again = Tuning::parse(&text, path).expect("what was read can be read again");
            assert_eq!(serde_json::to_vec(&again).expect("plain data"), text);
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.contains("fuzz.tuning.json") && !message.contains('\n'), "{message}");
        }
    }
});
