//! A bound on expressions of a JSON schema that hold for one value at the same time.
//!
//! The compiler intersects the patterns, formats and multiples that `allOf`, `$ref` and
//! neighbouring keywords put on one value. One derivative of an intersection tries every
//! combination of the operands' branches, and llguidance counts its fuel only afterwards. This
//! module bounds the number of combinations; fuel bounds the rest (see
//! [`crate::grammar::compile`]).
//!
//! Alternatives are combined one list at a time, so a schema that spreads its patterns over several
//! `anyOf` of one object's properties can pass. The caller limits how many compilations may be
//! slow.

use std::collections::{BTreeSet, HashSet};

use serde_json::{Map, Value};

/// Most combinations of branches that one derivative may try: 0.2 s in a release build.
const MOST_COMBINATIONS: f64 = 1e6;
/// Most schemas in all groups that are looked at. A group counts once, so recursive schemas have
/// few.
const MOST_MEMBERS: usize = 200_000;

/// Why the expressions of a schema cannot be intersected; `None`: they can.
pub(crate) fn refusal(schema: &Value) -> Option<String> {
    let root = vec![Member { schema, alternatives: true }];
    let mut walk = Walk { root: schema, seen: HashSet::new(), open: vec![root], members: 0 };
    while let Some(group) = walk.open.pop() {
        if let Some(why) = walk.group(group) {
            return Some(why);
        }
    }
    None
}

/// A schema that holds for a value.
#[derive(Clone, Copy)]
struct Member<'s> {
    schema: &'s Value,
    /// Whether its `anyOf` and `oneOf` are still to be followed.
    alternatives: bool,
}

struct Walk<'s> {
    root: &'s Value,
    seen: HashSet<BTreeSet<(usize, bool)>>, // groups, by the addresses of their members
    open: Vec<Vec<Member<'s>>>,             // groups to be checked
    members: usize,                         // of all groups so far
}

impl<'s> Walk<'s> {
    /// Checks the schemas that hold for one value. Opens its alternatives and the values inside it.
    fn group(&mut self, members: Vec<Member<'s>>) -> Option<String> {
        let key: BTreeSet<_> =
            members.iter().map(|m| (std::ptr::from_ref(m.schema) as usize, m.alternatives)).collect();
        if members.is_empty() || !self.seen.insert(key) {
            return None;
        }
        let closure = self.closure(members);
        self.members += closure.len();
        if self.members > MOST_MEMBERS {
            return Some("its parts combine in too many ways".to_owned());
        }
        let maps: Vec<&'s Map<String, Value>> = closure.iter().filter_map(|m| m.schema.as_object()).collect();
        let own: f64 = maps.iter().map(|map| branches(map)).product();
        let lists: Vec<&'s Vec<Value>> = closure.iter().filter(|m| m.alternatives).flat_map(alternatives).collect();
        let of_list =
            |list: &&Vec<Value>| list.iter().map(|alternative| self.all_branches(alternative)).fold(1.0, f64::max);
        let combinations = own * lists.iter().map(of_list).product::<f64>();
        if combinations > MOST_COMBINATIONS {
            return Some(format!(
                "patterns, formats and multipleOf that hold for one value combine in {combinations:.0} ways, and at \
                 most {MOST_COMBINATIONS:.0} are taken"
            ));
        }
        let all = |m: &Member<'s>| Member { alternatives: false, ..*m };
        for alternative in lists.into_iter().flatten() {
            let mut with: Vec<Member<'s>> = closure.iter().map(all).collect();
            with.push(Member { schema: alternative, alternatives: true });
            self.open.push(with);
        }
        self.inside(&maps)
    }

    /// Opens the groups of the values inside one for which `maps` hold.
    fn inside(&mut self, maps: &[&'s Map<String, Value>]) -> Option<String> {
        let member = |schema| Member { schema, alternatives: true };
        let named = |key: &'static str| maps.iter().filter_map(move |map| map.get(key)?.as_object());
        let single = |key: &'static str| maps.iter().filter_map(move |map| map.get(key));
        let mut others: Vec<Member<'s>> = single("additionalProperties").map(member).collect();
        others.extend(named("patternProperties").flat_map(Map::values).map(member));
        let widest = named("patternProperties").flat_map(Map::keys).map(|pattern| pattern_branches(pattern));
        let widest = widest.fold(1.0, f64::max);
        if widest * widest > MOST_COMBINATIONS {
            return Some("patternProperties: a pattern is too large to be compared with others".to_owned());
        }
        let names: BTreeSet<&String> = named("properties").flat_map(Map::keys).collect();
        for name in names {
            let mut group: Vec<Member<'s>> = named("properties").filter_map(|map| map.get(name)).map(member).collect();
            group.extend(others.iter().copied());
            self.open.push(group);
        }
        let mut items: Vec<Member<'s>> = single("items").filter(|items| !items.is_array()).map(member).collect();
        items.extend(single("additionalItems").chain(single("contains")).map(member));
        let arrays = |key: &'static str| maps.iter().filter_map(move |map| map.get(key)?.as_array());
        let first = arrays("prefixItems").chain(arrays("items")).map(Vec::len).max().unwrap_or(0);
        for i in 0..first {
            let mut group: Vec<Member<'s>> =
                arrays("prefixItems").chain(arrays("items")).filter_map(|list| list.get(i)).map(member).collect();
            group.extend(items.iter().copied());
            self.open.push(group);
        }
        self.open.extend([others, items]);
        None
    }

    /// The members and all that hold with them: `allOf`, and the targets of `$ref`.
    fn closure(&self, mut open: Vec<Member<'s>>) -> Vec<Member<'s>> {
        let (mut closure, mut known) = (Vec::new(), HashSet::new());
        while let Some(member) = open.pop() {
            if !known.insert(std::ptr::from_ref(member.schema)) {
                continue;
            }
            closure.push(member);
            let all_of = member.schema.get("allOf").and_then(Value::as_array).into_iter().flatten();
            let target = member.schema.get("$ref").and_then(Value::as_str).and_then(|to| self.target(to));
            open.extend(all_of.chain(target).map(|schema| Member { schema, ..member }));
        }
        closure
    }

    /// The schema that a reference inside the document names.
    fn target(&self, reference: &str) -> Option<&'s Value> {
        self.root.pointer(reference.strip_prefix('#')?)
    }

    /// The combinations of an alternative alone, with its own alternatives.
    fn all_branches(&self, schema: &'s Value) -> f64 {
        let closure = self.closure(vec![Member { schema, alternatives: true }]);
        closure.iter().filter_map(|m| m.schema.as_object()).map(branches).product()
    }
}

fn alternatives<'s>(member: &Member<'s>) -> impl Iterator<Item = &'s Vec<Value>> {
    let schema = member.schema;
    ["anyOf", "oneOf"].into_iter().filter_map(move |key| schema.get(key)?.as_array())
}

/// Branches of a derivative of the expressions that a schema itself puts on a value.
fn branches(map: &Map<String, Value>) -> f64 {
    let pattern = map.get("pattern").and_then(Value::as_str).map_or(1.0, pattern_branches);
    // The largest built-in format, and the ten digits with the point.
    let format = if map.contains_key("format") { 64.0 } else { 1.0 };
    let multiple = if map.contains_key("multipleOf") { 11.0 } else { 1.0 };
    pattern * format * multiple
}

/// Branches of a derivative of a pattern: each class and each character that it holds, once.
fn pattern_branches(pattern: &str) -> f64 {
    let mut atoms = HashSet::new();
    let mut rest = pattern;
    while let Some(c) = rest.chars().next() {
        let length = match c {
            '[' => {
                let mut escaped = false;
                let end = rest.char_indices().skip(2).find(|(_, c)| {
                    let ends = *c == ']' && !escaped;
                    escaped = *c == '\\' && !escaped;
                    ends
                });
                end.map_or(rest.len(), |(at, _)| at + 1)
            }
            '\\' => 1 + rest[1..].chars().next().map_or(0, char::len_utf8),
            _ => c.len_utf8(),
        };
        let (atom, after) = rest.split_at(length);
        if !matches!(c, '(' | ')' | '|' | '*' | '+' | '?' | '{' | '}' | '^' | '$') {
            atoms.insert(atom);
        }
        rest = after;
    }
    1.0 + atoms.len() as f64
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn schemas_whose_expressions_are_apart_are_taken() {
        let pattern =
            |i: usize| json!({ "type": "string", "pattern": format!("^[a-z]{{{i}}}[0-9]+$"), "maxLength": 9 });
        let properties: Map<String, Value> = (0..200).map(|i| (format!("p{i}"), pattern(i))).collect();
        let base = json!({ "type": "object", "properties": properties });
        let node = json!({ "properties": { "next": { "$ref": "#/$defs/node" }, "name": pattern(3), "to": base } });
        for schema in [
            base.clone(),
            json!({ "$defs": { "base": base, "node": node }, "allOf": [{ "$ref": "#/$defs/base" }, node, { "$ref": "#" }] }),
            json!({ "$defs": { "node": node }, "$ref": "#/$defs/node" }),
            json!({ "oneOf": (0..50).map(pattern).collect::<Vec<_>>() }),
            json!({ "properties": { "a": { "multipleOf": 5000 }, "b": { "multipleOf": 5000 } } }),
        ] {
            assert_eq!(refusal(&schema), None, "{schema}");
        }
    }

    #[test]
    fn many_expressions_for_one_value_are_refused_wherever_they_come_from() {
        let pattern = |i: usize| json!({ "type": "string", "pattern": format!("(.*[b-{}].{{{}}})+", char::from(b'c' + i as u8), i + 5) });
        let all: Vec<Value> = (0..20).map(pattern).collect();
        let mut chain = Map::new();
        for i in 0..20 {
            let mut link = pattern(i);
            link["$ref"] = format!("#/$defs/d{}", i + 1).into();
            chain.insert(format!("d{i}"), link);
        }
        let within: Vec<Value> = all.iter().map(|one| json!({ "properties": { "a": { "items": one } } })).collect();
        for schema in [
            json!({ "allOf": all }),
            json!({ "$defs": chain, "$ref": "#/$defs/d0" }),
            json!({ "allOf": within }),
            json!({ "properties": { "x": { "allOf": within } } }),
            json!({ "allOf": all.iter().map(|one| json!({ "anyOf": [one, { "type": "null" }] })).collect::<Vec<_>>() }),
            json!({ "anyOf": [{ "allOf": all }, { "type": "null" }] }),
            json!({ "patternProperties": { (0..1000).map(|i| format!("[a-{}]", char::from_u32(0x100 + i).expect("a letter"))).collect::<String>(): {} } }),
        ] {
            assert!(refusal(&schema).is_some(), "{schema}");
        }
    }
}
