//! `ab` on records that are made for it: figures, intervals, verdicts, and what cannot be compared.

use serde_json::{Value, json};

use super::support::{Ran, file, keys, ran};

/// A request whose rounds of `tokens` tokens come every `ms` milliseconds.
fn line(id: usize, arm: &str, by: &str, ms: f64, tokens: u32) -> Value {
    let gaps: Vec<Value> = (0..20).map(|_| json!([ms, tokens])).collect();
    let whole = 0.1 + ms * 20.0 / 1e3;
    let accepted = 20 * (tokens - 1);
    json!({
        "id": format!("r{id}"), "time": 100.0 + id as f64, "path": "/v1/completions", "arm": arm, "arm_by": by,
        "parameters": {}, "prompt_tokens": 10, "cached_tokens": 0,
        "choices": [{
            "finish_reason": "length", "completion_tokens": 20 * tokens + 1, "queue_s": 0.01, "ttft_s": 0.1, "e2e_s": whole,
            "gaps": gaps, "drafted": 40, "accepted": accepted,
        }],
    })
}

/// 40 requests of each arm, whose times differ from request to request; with speculation rounds
/// give two tokens.
fn record(plain_ms: f64, speculation_ms: f64) -> String {
    let spread = |i: usize| 0.9 + 0.2 * (i * 7 % 40) as f64 / 40.0;
    let plain = (0..40).map(|i| line(i, "plain", "share", plain_ms * spread(i), 1));
    let speculation = (40..80).map(|i| line(i, "speculation", "share", speculation_ms * spread(i), 2));
    plain.chain(speculation).map(|line| format!("{line}\n")).collect()
}

fn ab(content: &str, flags: &[&str]) -> Ran {
    let (_dir, path) = file("record.jsonl", content);
    ran(&[&["ab", &path.display().to_string()], flags].concat())
}

#[test]
fn the_verdict_follows_the_interval() {
    let faster = ab(&record(10.0, 14.0), &[]);
    assert_eq!((faster.code, faster.stderr.as_str()), (Some(0), ""));
    assert!(faster.stdout.contains("Verdict: speculation pays: decoding is 1.43 times as fast"), "{}", faster.stdout);
    let slower = ab(&record(10.0, 24.0), &[]).stdout;
    assert!(slower.contains("Verdict: speculation costs: decoding is 0.83 times as fast"), "{slower}");
    let same = ab(&record(10.0, 20.1), &[]).stdout;
    assert!(same.contains("Verdict: no difference can be told"), "{same}");
    let few: String = record(10.0, 14.0).lines().step_by(4).map(|line| format!("{line}\n")).collect();
    let few = ab(&few, &[]).stdout;
    assert!(few.contains("An arm has only 10 requests"), "{few}");
}

#[test]
fn the_figures_are_those_of_the_record() {
    let json = ab(&record(10.0, 14.0), &["--json"]).json();
    assert_eq!(keys(&json), ["method", "left_out", "plain", "speculation", "speculation_over_plain", "verdict"]);
    let (plain, speculation) = (&json["plain"], &json["speculation"]);
    assert_eq!((plain["requests"].as_u64(), speculation["completion_tokens"].as_u64()), (Some(40), Some(40 * 41)));
    let figure = |of: &Value, name: &str| of["figures"][name]["value"].as_f64().expect("a figure");
    assert!((figure(plain, "ttft_p50_s") - 0.1).abs() < 1e-9);
    assert!((figure(plain, "inter_token_p50_s") - 0.01).abs() < 2e-4, "{plain}");
    assert!((figure(speculation, "inter_token_p50_s") - 0.007).abs() < 2e-4, "{speculation}");
    assert!((figure(plain, "e2e_p99_s") - 0.319).abs() < 1e-3, "{plain}");
    assert!((figure(speculation, "acceptance") - 0.5).abs() < 1e-9);
    let ratio = &json["speculation_over_plain"]["decode_tokens_per_second"];
    let number = |key: &str| ratio[key].as_f64().expect("a number");
    assert!(number("low") < number("value") && number("value") < number("high"), "{ratio}");
    assert!(number("high") - number("low") < 0.1, "{ratio}");
    assert_eq!(json["method"]["draws"], 1000);
    assert_eq!(ab(&record(10.0, 14.0), &["--json"]).json(), json, "the same each time");
    assert_eq!(plain["figures"]["acceptance"]["value"].as_f64(), Some(0.0));
}

#[test]
fn what_cannot_be_compared_is_said() {
    let empty = ab("\n", &[]);
    assert!(empty.code == Some(2) && empty.stderr.contains("there are no requests in it"), "{empty:?}");
    let plain: String = (0..3).map(|i| format!("{}\n", line(i, "plain", "share", 10.0, 1))).collect();
    let one = ab(&plain, &[]);
    assert!(
        one.code == Some(2)
            && one.stderr.contains("none of the 3 requests that can be compared is of the arm speculation"),
        "{one:?}"
    );
    let own = plain.clone() + &line(4, "speculation", "request", 14.0, 2).to_string();
    assert!(ab(&own, &[]).stderr.contains("of the arm speculation"), "it chose for itself");
    assert_eq!(ab(&own, &["--all"]).code, Some(0));
    let nobody = plain.replace("\"share\"", "\"default\"");
    let nobody = ab(&nobody, &[]);
    assert!(nobody.code == Some(2) && nobody.stderr.contains("none was given its arm by a share"), "{nobody:?}");
    let damaged = record(10.0, 14.0).replacen("\"arm\":\"plain\"", "\"arm\":\"other\"", 2);
    let torn = ab(&damaged, &[]);
    assert!(
        torn.code == Some(1) && torn.stderr.contains("line 1 is no request of a record: unknown variant `other`"),
        "{torn:?}"
    );
    assert!(torn.stderr.contains("hint: --skip-damaged"), "{torn:?}");
    let skipped = ab(&damaged, &["--skip-damaged"]);
    assert!(skipped.code == Some(0) && skipped.stderr.contains("2 damaged lines are left out"), "{skipped:?}");
    for bad in ["[]", "{}", "\u{0}", "{\"id\": \"a\""] {
        let bad = ab(&(record(10.0, 14.0) + bad), &[]);
        assert!(bad.code == Some(1) && bad.stderr.contains("line 81 is no request"), "{bad:?}");
    }
    let ages = record(10.0, 14.0).replacen("\"ttft_s\":0.1", "\"ttft_s\":-1", 1);
    assert!(ab(&ages, &[]).stderr.contains("line 1 is no request of a record: a time is negative"));
    assert_eq!(ran(&["ab", "/no/such/file"]).code, Some(1));
}

#[test]
fn requests_that_came_to_nothing_are_counted_and_change_no_latency() {
    let mut lost = line(99, "plain", "share", 1.0, 1);
    lost["choices"][0] = json!({ "finish_reason": "cancelled", "completion_tokens": 0, "queue_s": null, "ttft_s": null, "e2e_s": 500.0, "gaps": [], "drafted": 0, "accepted": 0 });
    let with = ab(&(record(10.0, 14.0) + &lost.to_string()), &["--json"]).json();
    let without = ab(&record(10.0, 14.0), &["--json"]).json();
    assert_eq!((&with["plain"]["requests"], &with["plain"]["cancelled"]), (&json!(41), &json!(1)));
    for name in ["e2e_p99_s", "ttft_p50_s", "decode_tokens_per_second"] {
        assert_eq!(with["plain"]["figures"][name]["value"], without["plain"]["figures"][name]["value"], "{name}");
    }
    let mut all_lost = line(99, "speculation", "share", 1.0, 1);
    all_lost["choices"] = lost["choices"].clone();
    let plain: String = (0..3).map(|i| format!("{}\n", line(i, "plain", "share", 10.0, 1))).collect();
    let nothing = ab(&(plain + &all_lost.to_string()), &[]);
    assert!(nothing.code == Some(0) && nothing.stdout.contains("Verdict: nothing can be told"), "{nothing:?}");
}
