//! The requests of one arm, and their figures.

use crate::rollout::record::RecordedRequest;

/// The percentiles of latencies.
const PERCENTILES: [f64; 3] = [0.5, 0.9, 0.99];

/// Names of the figures of an arm: latencies in seconds at their percentiles, tokens a second,
/// acceptance.
pub const FIGURE_NAMES: [&str; 11] = [
    "ttft_p50_s",
    "ttft_p90_s",
    "ttft_p99_s",
    "inter_token_p50_s",
    "inter_token_p90_s",
    "inter_token_p99_s",
    "e2e_p50_s",
    "e2e_p90_s",
    "e2e_p99_s",
    "decode_tokens_per_second",
    "acceptance",
];

/// The index of the tokens a second in [`FIGURE_NAMES`].
pub(super) const SPEED: usize = 9;

/// RequestTimes of requests, those of all requests sorted together: (seconds, request, how often it
/// counts).
type RequestTimes = Vec<(f64, usize, f64)>;

/// The requests of one arm.
#[derive(Debug, Clone, Default)]
pub struct ArmRequests {
    /// Requests.
    pub requests: usize,
    /// Their answers.
    pub choices: usize,
    /// Answers that failed.
    pub failed: usize,
    /// Answers that were cancelled.
    pub cancelled: usize,
    /// Tokens of the prompts.
    pub prompt_tokens: usize,
    /// Tokens generated.
    pub completion_tokens: usize,
    first: RequestTimes,
    between: RequestTimes,
    whole: RequestTimes,
    sums: Vec<RequestSums>, // (request)
}

/// Sums of one request.
#[derive(Debug, Clone, Copy, Default)]
struct RequestSums {
    decoded: f64,  // tokens after the first round
    decoding: f64, // seconds
    drafted: f64,
    accepted: f64,
}

impl ArmRequests {
    /// The arm of these requests.
    pub(super) fn of<'a>(requests: impl Iterator<Item = &'a RecordedRequest>) -> Self {
        let mut arm = ArmRequests::default();
        for request in requests {
            arm.add(request);
        }
        for times in [&mut arm.first, &mut arm.between, &mut arm.whole] {
            times.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        }
        arm
    }

    fn add(&mut self, line: &RecordedRequest) {
        let request = self.requests;
        self.requests += 1;
        self.choices += line.choices.len();
        self.prompt_tokens += line.prompt_tokens;
        let mut sums = RequestSums::default();
        for choice in &line.choices {
            self.failed += usize::from(choice.finish_reason == "failed");
            self.cancelled += usize::from(choice.finish_reason == "cancelled");
            self.completion_tokens += choice.completion_tokens;
            self.first.extend(choice.ttft_s.map(|seconds| (seconds, request, 1.0)));
            if !["failed", "cancelled"].contains(&choice.finish_reason.as_str()) {
                self.whole.push((choice.e2e_s, request, 1.0));
            }
            for (ms, tokens) in choice.gaps.iter().filter(|(_, tokens)| *tokens > 0) {
                let (seconds, tokens) = (ms / 1e3, f64::from(*tokens));
                self.between.push((seconds / tokens, request, tokens));
                sums.decoded += tokens;
                sums.decoding += seconds;
            }
            sums.drafted += choice.drafted as f64;
            sums.accepted += choice.accepted as f64;
        }
        self.sums.push(sums);
    }

    /// How many times the figures look at.
    pub(super) fn size(&self) -> usize {
        self.first.len() + self.between.len() + self.whole.len() + self.sums.len()
    }

    /// The figures if each request counts as often as `counts` says; none if nothing was measured.
    /// Shape of `counts`: (request).
    pub(super) fn figures(&self, counts: &[f64]) -> [Option<f64>; FIGURE_NAMES.len()] {
        let mut figures = [None; FIGURE_NAMES.len()];
        for (i, times) in [&self.first, &self.between, &self.whole].into_iter().enumerate() {
            let at = i * PERCENTILES.len();
            figures[at..at + PERCENTILES.len()].copy_from_slice(&percentiles(times, counts));
        }
        let mut all = RequestSums::default();
        for (sums, count) in self.sums.iter().zip(counts) {
            all.decoded += sums.decoded * count;
            all.decoding += sums.decoding * count;
            all.drafted += sums.drafted * count;
            all.accepted += sums.accepted * count;
        }
        let ratio = |a: f64, b: f64| (b > 0.0).then(|| a / b);
        figures[SPEED] = ratio(all.decoded, all.decoding);
        figures[SPEED + 1] = ratio(all.accepted, all.drafted);
        figures
    }
}

/// At each of [`PERCENTILES`], the smallest time that this share of all times does not exceed.
fn percentiles(times: &RequestTimes, counts: &[f64]) -> [Option<f64>; PERCENTILES.len()] {
    let weight = |(_, request, often): &(f64, usize, f64)| counts[*request] * often;
    let all: f64 = times.iter().map(weight).sum();
    let mut found = [None; PERCENTILES.len()];
    let (mut next, mut below) = (0, 0.0);
    for time in times {
        below += weight(time);
        // RequestSums of whole numbers are exact; the shares of them are not.
        while below > 0.0 && PERCENTILES.get(next).is_some_and(|share| below + 1e-9 >= share * all) {
            found[next] = Some(time.0);
            next += 1;
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_times_as_often_as_they_count() {
        let times: RequestTimes = (1..=10).map(|n| (f64::from(n), n as usize - 1, 1.0)).collect();
        assert_eq!(percentiles(&times, &[1.0; 10]), [Some(5.0), Some(9.0), Some(10.0)]);
        let mut counts = [0.0; 10];
        (counts[2], counts[7]) = (3.0, 1.0);
        assert_eq!(percentiles(&times, &counts), [Some(3.0), Some(8.0), Some(8.0)]);
        assert_eq!(percentiles(&times, &[0.0; 10]), [None; 3]);
        assert_eq!(percentiles(&vec![(0.5, 0, 99.0), (2.0, 0, 1.0)], &[1.0]), [Some(0.5), Some(0.5), Some(0.5)]);
    }
}
