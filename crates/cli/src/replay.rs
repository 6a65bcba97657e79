//! `selfspec replay`: sends the requests of a record to a server again, and compares the answers.

use std::collections::BTreeMap;

use selfspec_lab::rollout::{
    ReplayCounts, ReplayError, ReplayOptions, ReplayReport, ReplayResult, ReplaySpeed, ReplayTarget, replay,
};

use crate::ab;
use crate::args::{ReplayArgs, Speed};
use crate::failure::{AlreadyReported, usage};
use crate::output::{self, Ui};
use crate::progress::LabBars;

/// Most requests that are listed one by one.
const NAMED: usize = 10;

pub(crate) fn run(args: &ReplayArgs, ui: &Ui) -> anyhow::Result<()> {
    let record = ab::read(&args.file, ui)?;
    let target = ReplayTarget { url: args.url.clone(), api_key: args.api_key.clone() };
    let speed = match args.speed {
        Speed::Times(times) => ReplaySpeed::Times(times),
        Speed::Max => ReplaySpeed::Max,
    };
    let options = ReplayOptions { speed, concurrency: args.concurrency };
    let report = replay(&record.requests, &target, options, &LabBars::new(ui)).map_err(|error| match error {
        ReplayError::NoPrompts { .. } => {
            let hint = "`selfspec serve --record FILE --record-prompts` records what can be replayed";
            usage(format!("{}: {error}", args.file.path.display()), hint)
        }
        ReplayError::Path { .. } => usage(error.to_string(), None),
        ReplayError::Url { .. } => usage(format!("--url {error}"), None),
    })?;
    match args.json {
        true => output::print_json(&report.json())?,
        false => output::print(&text(&report))?,
    }
    if report.ok() { Ok(()) } else { Err(AlreadyReported.into()) }
}

fn text(report: &ReplayReport) -> String {
    let ReplayCounts { failed, identical, different, incomparable } = report.counts();
    let mut text = format!("{} requests in {:.1} s\n", report.requests.len(), report.seconds);
    text += &format!("{identical} identical, {different} different, {incomparable} not comparable, {failed} failed\n");
    let mut reasons: BTreeMap<&str, usize> = BTreeMap::new();
    for request in &report.requests {
        if let ReplayResult::Incomparable(why) = request.result {
            *reasons.entry(why).or_default() += 1;
        }
    }
    for (why, n) in reasons {
        text += &format!("not comparable: {n} ({why})\n");
    }
    if report.left_out > 0 {
        text += &format!("left out: {} that were recorded without their prompts\n", report.left_out);
    }
    let late_s = report.requests.iter().map(|request| request.late_s).fold(0.0, f64::max);
    if late_s > 1.0 {
        text += &format!("some were sent late, by up to {late_s:.1} s: --concurrency lets more be under way\n");
    }
    let named = report.requests.iter().filter_map(|request| match &request.result {
        ReplayResult::Different { choice, same, recorded, got } => Some(format!(
            "{}: answer {choice} differs after {same} characters: recorded {recorded:?}, got {got:?}\n",
            request.id
        )),
        ReplayResult::Failed(why) => Some(format!("{}: failed: {why}\n", request.id)),
        ReplayResult::Identical | ReplayResult::Incomparable(_) => None,
    });
    let named: Vec<String> = named.collect();
    text += &named[..named.len().min(NAMED)].concat();
    if named.len() > NAMED {
        text += &format!("and {} more: --json names all\n", named.len() - NAMED);
    }
    text
}
