//! Any bytes as a record of requests: requests whose times are possible, or an error that names the
//! line.
#![no_main]

use std::path::Path;

use libfuzzer_sys::fuzz_target;
use selfspec_lab::rollout::{RecordError, parse_record};

fuzz_target!(|data: &[u8]| {
    let path = Path::new("fuzz.jsonl");
    match parse_record(data, path, false) {
        Ok(record) => {
            assert!(!record.requests.is_empty() && record.damaged == 0);
            assert!(record.requests.iter().all(|request| request.time >= 0.0));
        }
        Err(error) => {
            let message = error.to_string();
            assert!(message.starts_with("fuzz.jsonl: ") && !message.contains('\n'), "{message}");
            let lines = data.split(|byte| *byte == b'\n').count();
            assert!(!matches!(error, RecordError::Line { line, .. } if line == 0 || line > lines));
        }
    }
    let _ = parse_record(data, path, true);
});
