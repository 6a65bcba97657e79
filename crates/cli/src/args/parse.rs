//! Values of flags: text to typed values, with ranges.

use std::fmt::Display;
use std::ops::{Range, RangeInclusive};
use std::str::FromStr;
use std::time::Duration;

use selfspec_engine::ExitHeadSource;
use selfspec_speculate::{DraftLen, MAX_DRAFT};
use selfspec_text::ToolStyle;

/// The layers whose states an exit head reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Features(pub(crate) Vec<usize>);

/// A floating-point number, which must pass `ok`.
fn number(s: &str, ok: impl Fn(f32) -> bool, expected: &str) -> Result<f32, String> {
    match f32::from_str(s.trim()) {
        Ok(v) if v.is_finite() && ok(v) => Ok(v),
        _ => Err(format!("expected {expected}")),
    }
}

/// Layers, or `none`.
pub(crate) fn features(s: &str) -> Result<Features, String> {
    if s.trim() == "none" {
        return Ok(Features(Vec::new()));
    }
    let layers: Result<Vec<usize>, String> = s.split(',').map(count).collect();
    let layers = layers.map_err(|_| "expected numbers of layers with commas between, or none".to_owned())?;
    match layers.iter().enumerate().find(|(i, layer)| layers[..*i].contains(layer)) {
        Some((_, twice)) => Err(format!("{twice} is named twice")),
        None => Ok(Features(layers)),
    }
}

pub(crate) fn exit_head(s: &str) -> Result<ExitHeadSource, String> {
    match s {
        "" => Err("expected a file, or off".to_owned()),
        "off" => Ok(ExitHeadSource::Off),
        file => Ok(ExitHeadSource::File(file.into())),
    }
}

pub(crate) fn temperature(s: &str) -> Result<f32, String> {
    number(s, |v| v >= 0.0, "a number, 0 or above")
}

pub(crate) fn above_zero_to_one(s: &str) -> Result<f32, String> {
    number(s, |v| v > 0.0 && v <= 1.0, "a number above 0, at most 1")
}

pub(crate) fn zero_to_one(s: &str) -> Result<f32, String> {
    number(s, |v| (0.0..=1.0).contains(&v), "a number from 0 to 1")
}

/// A share, in full precision.
pub(crate) fn share(s: &str) -> Result<f64, String> {
    let share = s.trim().parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
    share.ok_or_else(|| "expected a number from 0 to 1".to_owned())
}

pub(crate) fn zero_to_half(s: &str) -> Result<f32, String> {
    number(s, |v| (0.0..=0.5).contains(&v), "a number from 0 to 0.5")
}

pub(crate) fn zero_or_above(s: &str) -> Result<f32, String> {
    number(s, |v| v >= 0.0, "a number, 0 or above")
}

/// A share in percent, with or without `%`.
pub(crate) fn percent(s: &str) -> Result<f32, String> {
    number(s.trim().trim_end_matches('%'), |v| v >= 0.0, "a number of percent, 0 or above")
}

pub(crate) fn above_zero(s: &str) -> Result<f32, String> {
    number(s, |v| v > 0.0, "a number above 0")
}

pub(crate) fn seconds(s: &str) -> Result<Duration, String> {
    number(s, |v| v > 0.0 && v <= 1e6, "a number of seconds, above 0").map(Duration::from_secs_f32)
}

pub(crate) fn any_number(s: &str) -> Result<f32, String> {
    number(s, |_| true, "a number")
}

/// A whole number within a range.
fn whole<T: FromStr + PartialOrd + Display>(s: &str, range: RangeInclusive<T>) -> Result<T, String> {
    match T::from_str(s.trim()) {
        Ok(n) if range.contains(&n) => Ok(n),
        _ => Err(format!("expected a whole number from {} to {}", range.start(), range.end())),
    }
}

/// A count from 1 to 16,777,216.
pub(crate) fn count(s: &str) -> Result<usize, String> {
    whole(s, 1..=1 << 24)
}

pub(crate) fn threads(s: &str) -> Result<usize, String> {
    whole(s, 1..=1024)
}

pub(crate) fn top_k(s: &str) -> Result<usize, String> {
    whole(s, 0..=u32::MAX).map(|k| k as usize)
}

pub(crate) fn seed(s: &str) -> Result<u64, String> {
    whole(s, 0..=u64::MAX)
}

/// Requests a second, or `inf`.
pub(crate) fn request_rate(s: &str) -> Result<f64, String> {
    match (s.trim(), f64::from_str(s.trim())) {
        ("inf", _) => Ok(f64::INFINITY),
        (_, Ok(rate)) if rate.is_finite() && rate > 0.0 => Ok(rate),
        _ => Err("expected a number above 0, or inf".to_owned()),
    }
}

/// A server's address, without a slash at the end.
pub(crate) fn url(s: &str) -> Result<String, String> {
    let url = s.trim().trim_end_matches('/');
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if host.is_none_or(|host| host.is_empty() || host.contains(char::is_whitespace)) {
        return Err("expected http://HOST:PORT or https://HOST".to_owned());
    }
    match url.strip_suffix("/v1") {
        Some(base) => Ok(base.to_owned()), // as clients of OpenAI's API give it
        None => Ok(url.to_owned()),
    }
}

/// A text that is not empty.
pub(crate) fn not_empty(s: &str) -> Result<String, String> {
    if s.is_empty() { Err("must not be empty".to_owned()) } else { Ok(s.to_owned()) }
}

/// `auto`, `window`, or a fixed number of tokens.
pub(crate) fn draft_len(s: &str) -> Result<DraftLen, String> {
    match (s.trim(), usize::from_str(s.trim())) {
        ("auto", _) => Ok(DraftLen::Adaptive),
        ("window", _) => Ok(DraftLen::Window),
        (_, Ok(k)) if (1..=MAX_DRAFT).contains(&k) => Ok(DraftLen::Fixed(k)),
        _ => Err(format!("expected `auto`, `window`, or a whole number from 1 to {MAX_DRAFT}")),
    }
}

/// The drafts of a round to learn from.
pub(crate) fn rollout(s: &str) -> Result<usize, String> {
    whole(s, 1..=16)
}

/// Tokens drafted a round.
pub(crate) fn draft_count(s: &str) -> Result<usize, String> {
    whole(s, 1..=MAX_DRAFT)
}

/// `A..B`: layers from A up to, not including, B.
pub(crate) fn layers(s: &str) -> Result<Range<usize>, String> {
    let expected = || "expected A..B with A below B, for example 10..20".to_owned();
    let (from, to) = s.trim().split_once("..").ok_or_else(expected)?;
    match (usize::from_str(from.trim()), usize::from_str(to.trim())) {
        (Ok(from), Ok(to)) if from < to => Ok(from..to),
        _ => Err(expected()),
    }
}

/// The style of tool calls; `None`: as the model's template shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ToolStyleArg(pub(crate) Option<ToolStyle>);

/// `auto`, or a style of tool calls.
pub(crate) fn tool_style(s: &str) -> Result<ToolStyleArg, String> {
    match (s.trim(), s.trim().parse()) {
        ("auto", _) => Ok(ToolStyleArg(None)),
        (_, Ok(style)) => Ok(ToolStyleArg(Some(style))),
        _ => Err("expected auto, llama3, hermes or json".to_owned()),
    }
}

/// `ID=V`: a token and what is added to its logit.
pub(crate) fn logit_bias(s: &str) -> Result<(u32, f32), String> {
    let expected = || "expected ID=V with a token id and a number, for example 42=-100".to_owned();
    let (id, value) = s.trim().split_once('=').ok_or_else(expected)?;
    match (u32::from_str(id.trim()), any_number(value)) {
        (Ok(id), Ok(value)) => Ok((id, value)),
        _ => Err(expected()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_held() {
        assert_eq!(temperature("0.8"), Ok(0.8));
        for bad in ["-1", "nan", "inf", "x", ""] {
            assert!(temperature(bad).is_err(), "{bad}");
        }
        assert!(above_zero_to_one("0").is_err() && above_zero_to_one("1").is_ok() && zero_to_one("0").is_ok());
        assert!(count("0").is_err() && count("99999999999999999999").is_err() && threads("2").is_ok());
    }

    #[test]
    fn draft_lengths_layers_and_biases_are_read() {
        assert_eq!(draft_len("auto"), Ok(DraftLen::Adaptive));
        assert_eq!(draft_len("8"), Ok(DraftLen::Fixed(8)));
        assert!(draft_len("0").is_err() && draft_len("17").is_err());
        assert_eq!(layers("10..20"), Ok(10..20));
        assert!(layers("20..10").is_err() && layers("5..5").is_err() && layers("5").is_err());
        assert_eq!(logit_bias("42=-100"), Ok((42, -100.0)));
        assert_eq!(tool_style("auto"), Ok(ToolStyleArg(None)));
        assert_eq!(tool_style("hermes"), Ok(ToolStyleArg(Some(ToolStyle::Hermes))));
        assert!(tool_style("Hermes").is_err() && tool_style("").is_err());
        assert!(logit_bias("42").is_err() && logit_bias("-1=2").is_err() && logit_bias("1=nan").is_err());
    }
}
