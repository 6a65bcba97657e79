//! The Jinja environment of chat templates, as `transformers` sets it up: `trim_blocks`,
//! `lstrip_blocks`, loop controls, `raise_exception`, `strftime_now`, `tojson` in Python's format,
//! and Python's methods on strings, lists and dicts.

use std::cell::Cell;
use std::fmt::{self, Write};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Value, ValueKind, from_args};
use minijinja::{Environment, Error, ErrorKind, Output, State};

/// Registers everything that a template may use.
pub(crate) fn set_up(env: &mut Environment<'static>) {
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    env.set_syntax(syntax.expect("the delimiters are Jinja's own"));
    env.set_unknown_method_callback(methods);
    env.add_function("raise_exception", raise_exception);
    env.add_function("strftime_now", strftime_now);
    env.add_filter("tojson", tojson);
    env.add_filter("string", string);
    env.set_formatter(emit);
    // Jinja2 does not have them (or, `pprint`, prints otherwise), and no fuel bounds them.
    env.remove_filter("chain");
    env.remove_filter("pprint");
    env.remove_global("debug");
}

/// Longest text of a list or an object that is printed or made a string.
const LONGEST: usize = 1 << 20;

/// A text that ends at [`LONGEST`] bytes.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, s: &str) -> fmt::Result {
        if self.0.len() + s.len() > LONGEST {
            return Err(fmt::Error);
        }
        self.0.push_str(s);
        Ok(())
    }
}

/// The text of a list or an object. Lists that hold one list twice, and that twice again, are short
/// in memory and without end in print.
fn bounded(value: &Value) -> Result<String, Error> {
    let mut text = Bounded(String::new());
    write!(text, "{value}")
        .map_err(|_| invalid(format!("the text of a {} is longer than {LONGEST} bytes", value.kind())))?;
    Ok(text.0)
}

fn is_container(value: &Value) -> bool {
    value.as_object().is_some()
}

fn emit(out: &mut Output<'_>, state: &mut State<'_, '_>, value: &Value) -> Result<(), Error> {
    if is_container(value) {
        return Ok(out.write_str(&bounded(value)?)?);
    }
    minijinja::escape_formatter(out, state, value)
}

fn string(value: &Value) -> Result<Value, Error> {
    match value.kind() {
        ValueKind::String => Ok(value.clone()),
        _ => bounded(value).map(Value::from),
    }
}

/// Line (0 when unknown) and words of an error.
pub(crate) fn explain(error: &Error) -> (usize, String) {
    let what = match (error.kind(), error.detail()) {
        (ErrorKind::InvalidOperation, Some(detail)) => detail.to_owned(),
        (kind, Some(detail)) => format!("{kind}: {detail}"),
        (kind, None) => kind.to_string(),
    };
    let what = what.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    (error.line().unwrap_or(0), what)
}

/// `{% generation %}` marks the assistant's words for training; it prints its body.
pub(crate) fn without_generation_tags(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(at) = rest.find("{%") {
        let (before, from) = rest.split_at(at);
        // After the opening: in `{%}` one percent sign cannot both open and close.
        let Some(inner) = from[2..].find("%}").map(|length| &from[2..2 + length]) else { break };
        let (tag, after) = from.split_at(inner.len() + 4);
        out.push_str(before);
        let inner = inner.trim_matches(['-', '+']).trim();
        match inner {
            "generation" => out.push_str(&tag.replacen("generation", "if true", 1)),
            "endgeneration" => out.push_str(&tag.replacen("endgeneration", "endif", 1)),
            _ => out.push_str(tag),
        }
        rest = after;
    }
    out.push_str(rest);
    out
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(invalid(message))
}

fn strftime_now(format: &str) -> Result<String, Error> {
    if format.len() > 256 {
        return Err(invalid(format!("strftime_now: a format of {} bytes", format.len())));
    }
    let mut out = String::new();
    write!(out, "{}", chrono::Local::now().format(format))
        .map_err(|_| invalid(format!("strftime_now: bad format {format:?}")))?;
    Ok(out)
}

/// Methods of Python's types that minijinja-contrib does not have, and then its own.
fn methods(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    match (value.as_str(), method) {
        (Some(text), "removeprefix") => {
            let (prefix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_prefix(prefix).unwrap_or(text)))
        }
        (Some(text), "removesuffix") => {
            let (suffix,): (&str,) = from_args(args)?;
            Ok(Value::from(text.strip_suffix(suffix).unwrap_or(text)))
        }
        (Some(text), "index") => {
            let (part,): (&str,) = from_args(args)?;
            let at = text.find(part).ok_or_else(|| invalid("substring not found"))?;
            Ok(Value::from(text[..at].chars().count()))
        }
        (Some(text), "partition" | "rpartition") => {
            let (by,): (&str,) = from_args(args)?;
            let found = if method == "partition" { text.split_once(by) } else { text.rsplit_once(by) };
            Ok(match (found, method) {
                (Some((head, tail)), _) => owned([head, by, tail]),
                (None, "partition") => owned([text, "", ""]),
                (None, _) => owned(["", "", text]),
            })
        }
        (Some(text), "split" | "rsplit" | "splitlines") => {
            state.consume_fuel(parts(text, method, args) as u64)?; // before they are made
            pycompat(state, value, method, args)
        }
        (Some(text), "format") if wide(text) => Err(invalid("format: a width of more than four digits")),
        _ => pycompat(state, value, method, args),
    }
}

fn pycompat(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, args)
}

/// Pieces that a text is split into.
fn parts(text: &str, method: &str, args: &[Value]) -> usize {
    let found = match args.first().and_then(Value::as_str) {
        _ if method == "splitlines" => text.matches('\n').count() + 1,
        Some(separator) if !separator.is_empty() => text.matches(separator).count() + 1,
        _ => text.split_whitespace().count(),
    };
    let most = args.get(1).and_then(|most| usize::try_from(most.clone()).ok());
    most.map_or(found, |most| found.min(most.saturating_add(1)))
}

/// Whether a format may ask for a piece of ten thousand characters or more.
fn wide(format: &str) -> bool {
    format.split(|c: char| !c.is_ascii_digit()).any(|digits| digits.len() > 4)
}

fn owned(parts: [&str; 3]) -> Value {
    Value::from(parts.map(str::to_owned).to_vec())
}

/// Python's `json.dumps(value, ensure_ascii=False, indent=..., separators=..., sort_keys=...)`.
fn tojson(state: &State, value: &Value, indent: Option<Value>, kwargs: Kwargs) -> Result<Value, Error> {
    let indent = match kwargs.get::<Option<Value>>("indent")?.or(indent) {
        Some(v) if v.kind() == ValueKind::Number => Some(" ".repeat(usize::try_from(v).unwrap_or(0).min(64))),
        Some(v) if v.kind() == ValueKind::String => v.as_str().map(str::to_owned),
        _ => None,
    };
    // It is written once for each level before every item.
    if indent.as_ref().is_some_and(|i| i.len() > 64) {
        return Err(invalid("tojson: an indent of more than 64 bytes"));
    }
    let ensure_ascii = kwargs.get::<Option<bool>>("ensure_ascii")?.unwrap_or(false);
    let sort_keys = kwargs.get::<Option<bool>>("sort_keys")?.unwrap_or(false);
    let separators = kwargs.get::<Option<Vec<String>>>("separators")?;
    kwargs.assert_all_used()?;
    let (item, key) = match separators.as_deref() {
        Some([item, key]) => (item.clone(), key.clone()),
        Some(_) => return Err(invalid("tojson: separators must be two strings")),
        // Python leaves the space after a comma away when it breaks lines.
        None => (if indent.is_some() { "," } else { ", " }.to_owned(), ": ".to_owned()),
    };
    let mut out = String::new();
    Dump { state, indent, ensure_ascii, sort_keys, item, key, charged: Cell::new(0) }.write(value, 0, &mut out)?;
    Ok(Value::from(out))
}

fn invalid(what: impl Into<String>) -> Error {
    Error::new(ErrorKind::InvalidOperation, what.into())
}

struct Dump<'s, 'v, 'e> {
    state: &'s State<'v, 'e>,
    indent: Option<String>,
    ensure_ascii: bool,
    sort_keys: bool,
    item: String,
    key: String,
    charged: Cell<usize>, // bytes of the output that are paid for
}

impl Dump<'_, '_, '_> {
    fn write(&self, value: &Value, depth: usize, out: &mut String) -> Result<(), Error> {
        // Deeper than any JSON that a request can hold.
        if depth > 128 {
            return Err(invalid("tojson: nested more than 128 deep"));
        }
        let bytes = out.len() - self.charged.replace(out.len());
        self.state.consume_fuel(1 + bytes as u64 / 64)?;
        match value.kind() {
            ValueKind::None => out.push_str("null"),
            ValueKind::Bool => out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number if value.is_integer() => out.push_str(&value.to_string()),
            ValueKind::Number => out.push_str(&float(f64::try_from(value.clone())?)),
            ValueKind::String => self.string(value.as_str().unwrap_or_default(), out)?,
            ValueKind::Seq | ValueKind::Iterable => {
                let mut any = false;
                out.push('[');
                for item in value.try_iter()? {
                    self.between(&mut any, depth, out);
                    self.write(&item, depth + 1, out)?;
                }
                self.close(any, ']', depth, out);
            }
            ValueKind::Map => {
                let mut keys: Vec<Value> = value.try_iter()?.collect();
                if self.sort_keys {
                    keys.sort();
                }
                let mut any = false;
                out.push('{');
                for key in keys {
                    self.between(&mut any, depth, out);
                    match key.as_str() {
                        Some(text) => self.string(text, out)?,
                        None => self.string(&key.to_string(), out)?,
                    }
                    out.push_str(&self.key);
                    self.write(&value.get_item(&key)?, depth + 1, out)?;
                }
                self.close(any, '}', depth, out);
            }
            kind => return Err(invalid(format!("tojson: a value of kind {kind} has no JSON"))),
        }
        Ok(())
    }

    fn between(&self, any: &mut bool, depth: usize, out: &mut String) {
        if *any {
            out.push_str(&self.item);
        }
        *any = true;
        self.line(depth + 1, out);
    }

    fn close(&self, any: bool, bracket: char, depth: usize, out: &mut String) {
        if any {
            self.line(depth, out);
        }
        out.push(bracket);
    }

    fn line(&self, depth: usize, out: &mut String) {
        if let Some(indent) = &self.indent {
            out.push('\n');
            (0..depth).for_each(|_| out.push_str(indent));
        }
    }

    fn string(&self, text: &str, out: &mut String) -> Result<(), Error> {
        out.push('"');
        for c in text.chars() {
            match c {
                '"' => out.push_str("\\\""),
                '\\' => out.push_str("\\\\"),
                '\n' => out.push_str("\\n"),
                '\r' => out.push_str("\\r"),
                '\t' => out.push_str("\\t"),
                '\u{8}' => out.push_str("\\b"),
                '\u{c}' => out.push_str("\\f"),
                c if (c as u32) < 0x20 => escape(c, out),
                // Noncharacters stay, so that the sentinel can be taken out again.
                c if self.ensure_ascii && !c.is_ascii() && !crate::chat::guard::sentinels().any(|s| s == c) => {
                    escape(c, out)
                }
                c => out.push(c),
            }
        }
        out.push('"');
        Ok(())
    }
}

fn escape(c: char, out: &mut String) {
    for unit in c.encode_utf16(&mut [0; 2]) {
        let _ = write!(out, "\\u{unit:04x}"); // writing to a string cannot fail
    }
}

/// A float as Python writes it: the shortest digits, with a point or an exponent of at least two
/// digits.
fn float(value: f64) -> String {
    if value.is_nan() {
        return "NaN".into();
    }
    if value.is_infinite() {
        return if value > 0.0 { "Infinity" } else { "-Infinity" }.into();
    }
    let scientific = format!("{value:e}");
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if value != 0.0 && !(-4..16).contains(&exponent) {
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{mantissa}e{sign}{:02}", exponent.abs());
    }
    let plain = value.to_string();
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}
