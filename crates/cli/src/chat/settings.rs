//! `/set`: the settings of a chat while it runs.

use selfspec_engine::Request;

use crate::args::parse;

/// A setting: its name, its value in a request, and how a value is read.
struct Setting {
    name: &'static str,
    value: fn(&Request) -> String,
    set: fn(&mut Request, &str) -> Result<(), String>,
}

macro_rules! sampling {
    ($name:literal, $field:ident, $parse:path) => {
        Setting {
            name: $name,
            value: |request| request.sampling.$field.to_string(),
            set: |request, text| $parse(text).map(|value| request.sampling.$field = value),
        }
    };
}

/// All settings, under the names of their flags.
const SETTINGS: &[Setting] = &[
    sampling!("temp", temperature, parse::temperature),
    sampling!("top-k", top_k, parse::top_k),
    sampling!("top-p", top_p, parse::above_zero_to_one),
    sampling!("min-p", min_p, parse::zero_to_one),
    sampling!("repeat-penalty", repetition_penalty, parse::above_zero),
    sampling!("presence-penalty", presence_penalty, parse::any_number),
    sampling!("frequency-penalty", frequency_penalty, parse::any_number),
    Setting {
        name: "seed",
        value: |request| request.sampling.seed.map_or_else(|| "new each time".to_owned(), |seed| seed.to_string()),
        set: |request, text| parse::seed(text).map(|seed| request.sampling.seed = Some(seed)),
    },
    Setting {
        name: "max-tokens",
        value: |request| request.max_tokens.map_or_else(|| "no limit".to_owned(), |most| most.to_string()),
        set: |request, text| parse::count(text).map(|most| request.max_tokens = Some(most)),
    },
];

/// Carries out `/set WORDS`; gives lines to print: all settings if there are no words.
///
/// # Errors
/// No such setting, or a value that it cannot have.
pub(super) fn set(request: &mut Request, words: &str) -> Result<String, String> {
    if words.is_empty() {
        return Ok(SETTINGS.iter().map(|s| format!("{:<18} {}\n", s.name, (s.value)(request))).collect());
    }
    let (name, value) = words.split_once(char::is_whitespace).unwrap_or((words, ""));
    let setting = SETTINGS.iter().find(|s| s.name == name.trim_start_matches('-')).ok_or_else(|| {
        format!("no setting `{name}`: {}", SETTINGS.iter().map(|s| s.name).collect::<Vec<_>>().join(", "))
    })?;
    if value.trim().is_empty() {
        return Ok(format!("{} {}\n", setting.name, (setting.value)(request)));
    }
    (setting.set)(request, value.trim()).map_err(|why| format!("{} {}: {why}", setting.name, value.trim()))?;
    Ok(String::new())
}

#[cfg(test)]
mod tests {
    use selfspec_engine::Prompt;

    use super::*;

    #[test]
    fn settings_are_read_shown_and_refused_by_name() {
        let mut request = Request::new(Prompt::Tokens(Vec::new()));
        assert_eq!(set(&mut request, "temp 0.5"), Ok(String::new()));
        assert_eq!(set(&mut request, "--seed 7"), Ok(String::new()));
        assert_eq!(set(&mut request, "max-tokens 12"), Ok(String::new()));
        let of = (request.sampling.temperature, request.sampling.seed, request.max_tokens);
        assert_eq!(of, (0.5, Some(7), Some(12)));
        assert_eq!(set(&mut request, "temp").as_deref(), Ok("temp 0.5\n"));
        assert_eq!(set(&mut request, "").map(|lines| lines.lines().count()), Ok(SETTINGS.len()));
        let refused = |request: &mut Request, words: &str| set(request, words).expect_err("refused");
        assert!(refused(&mut request, "temp hot").starts_with("temp hot: "));
        assert!(refused(&mut request, "top-p 2").starts_with("top-p 2: "));
        assert!(refused(&mut request, "colour red").starts_with("no setting `colour`: temp, "));
        assert_eq!(request.sampling.temperature, 0.5, "a refused value changes nothing");
    }
}
