//! Reads the record of a server: a request a line.

use std::io::{BufRead, BufReader};

use anyhow::Context;
use selfspec_server::RecordLine;

use crate::args::RecordFileArg;
use crate::failure::{hinted, usage};
use crate::output::Ui;

/// The requests of a record, in the order of its lines.
///
/// # Errors
/// The file cannot be read, has no requests, or has a line that is none, unless those are to be left out.
pub(crate) fn read(file: &RecordFileArg, ui: &Ui) -> anyhow::Result<Vec<RecordLine>> {
    let path = file.path.display();
    let cannot = || format!("cannot read {path}");
    let mut reader = BufReader::new(std::fs::File::open(&file.path).with_context(cannot)?);
    let (mut lines, mut bytes, mut damaged, mut number) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        bytes.clear();
        if reader.read_until(b'\n', &mut bytes).with_context(cannot)? == 0 {
            break;
        }
        number += 1;
        if bytes.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        match serde_json::from_slice::<RecordLine>(&bytes).map_err(|e| e.to_string()).and_then(checked) {
            Ok(line) => lines.push(line),
            Err(_) if file.skip_damaged => damaged += 1,
            Err(why) => {
                let message = format!("{path}: line {number} is no request of a record: {why}");
                return Err(hinted(message, "--skip-damaged leaves such lines out"));
            }
        }
    }
    if damaged > 0 {
        ui.warn(&format!("{path}: {damaged} damaged lines are left out"));
    }
    if lines.is_empty() {
        let hint = "`selfspec serve --record FILE` writes one line for each request that ends";
        return Err(usage(format!("{path}: there are no requests in it"), hint));
    }
    Ok(lines)
}

/// A line whose times are times.
fn checked(line: RecordLine) -> Result<RecordLine, String> {
    let is_time = |seconds: f64| (0.0..1e12).contains(&seconds);
    let sound = is_time(line.time)
        && line.choices.iter().all(|choice| {
            let times = [choice.queue_s, choice.ttft_s, Some(choice.e2e_s)];
            times.into_iter().flatten().all(is_time) && choice.gaps.iter().all(|(ms, _)| is_time(*ms))
        });
    if sound { Ok(line) } else { Err("a time is negative, or far too long".to_owned()) }
}
