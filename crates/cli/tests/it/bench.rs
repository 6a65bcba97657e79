//! `bench` on a tiny model: the shape of the result, not its figures.

use super::support::{Ran, keys, model, ran};

fn bench(args: &[&str]) -> Ran {
    let ran = ran(&[&["bench", &model("tiny.gguf"), "-r", "1", "-n", "16", "--limit", "1"], args].concat());
    assert_eq!(ran.code, Some(0), "{args:?}: {}", ran.stderr);
    ran
}

#[test]
fn the_heading_names_a_cache_of_q8() {
    let heading = |kv_type: &str| {
        let flags = ["--no-speculation", "--exits", "2", "-t", "1", "--kv-type", kv_type];
        bench(&flags).stdout.lines().next().expect("a heading").to_owned()
    };
    assert!(heading("q8").ends_with(", KV cache q8") && !heading("f16").contains("KV cache"));
}

#[test]
fn json_has_exactly_the_documented_keys() {
    let json = bench(&["-o", "json", "--exits", "2,4", "-t", "2"]).json();
    let expected = [
        "plain_tok_s",
        "prefill_tok_s",
        "read_gb_s",
        "bound_share",
        "b",
        "pass_ms",
        "c",
        "speculation",
        "threads",
        "isa",
        "kv_type",
        "context",
    ];
    assert_eq!(keys(&json), expected);
    let rows: Vec<String> = (1..=16).map(|m| m.to_string()).collect();
    assert_eq!(keys(&json["b"]), rows);
    assert_eq!(keys(&json["pass_ms"]), rows);
    assert_eq!((json["b"]["1"].as_f64(), keys(&json["c"])), (Some(1.0), vec!["2", "4"]));
    assert_eq!(json["threads"], 2);
    let speculation = json["speculation"].as_array().expect("an array");
    assert_eq!(speculation.len(), 3);
    let line = ["drafter", "exit_layer", "draft_len", "category", "tok_s", "speedup", "drafted", "accepted", "rounds"];
    for entry in speculation {
        assert_eq!(keys(entry), line);
    }
    assert_eq!((&speculation[0]["exit_layer"], &speculation[0]["draft_len"]), (&4.into(), &4.into()));
    assert!(speculation[0]["drafted"].as_u64() > Some(0), "{json}");
}

#[test]
fn markdown_and_csv_have_the_same_figures() {
    let text = bench(&["--exits", "3"]).stdout;
    for word in ["| plain decoding", "| m   | ms", "| draft | c ", "| drafter ", "prompt-lookup"] {
        assert!(text.contains(word), "{word}: {text}");
    }
    // Every column is explained below its table.
    let mut heads =
        text.lines().zip(text.lines().skip(1)).filter(|(_, below)| below.starts_with("| --")).map(|(h, _)| h);
    let columns: Vec<&str> = heads.by_ref().flat_map(|h| h.trim_matches('|').split('|')).map(str::trim).collect();
    assert!(columns.len() > 12, "{columns:?}");
    let legend: String = text.lines().filter(|l| !l.starts_with('|')).collect();
    for column in columns.iter().filter(|c| !["", "unit"].contains(c)) {
        assert!(legend.contains(&format!("{column}:")) || legend.contains(&format!("{column},")), "{column}: {text}");
    }
    let csv = bench(&["-o", "csv", "--exits", "3"]).stdout;
    assert!(csv.starts_with("figure,key,value\nplain_tok_s,,"), "{csv}");
    assert!(csv.contains("\nb,16,") && csv.contains("\nc,3,") && csv.contains("\ndrafter,exit_layer,"), "{csv}");
}

#[test]
fn contexts_and_a_profile_add_their_own_tables() {
    let args = ["--contexts", "20,50,20", "--profile", "--no-speculation", "--exits", "2"];
    let json = bench(&[&args[..], &["-o", "json"]].concat()).json();
    assert_eq!(json["speculation"], serde_json::json!([]));
    let parts = json["profile"].as_array().expect("an array");
    assert_eq!(parts.len(), 11);
    assert_eq!((keys(&parts[0]), keys(&parts[0]["ms"]).len()), (vec!["part", "ms", "gb_s"], 16));
    let head = parts.last().expect("parts");
    assert!(head["part"] == "head" && head["gb_s"].as_f64() > Some(0.0), "{head}");
    let contexts = json["contexts"].as_array().expect("an array");
    assert_eq!((contexts.len(), &contexts[0]["context"]), (1, &50.into()));
    assert_eq!(keys(&contexts[0]), ["context", "b", "pass_ms", "c", "bound_share", "attention_share", "profile"]);
    assert_eq!(contexts[0]["profile"].as_array().map(Vec::len), Some(11));
    assert_eq!(keys(&contexts[0]["b"]), ["1", "2", "4", "8"]);
    assert!(contexts[0]["attention_share"].as_f64().is_some_and(|s| s > 0.0 && s < 1.0), "{json}");
    let text = bench(&args).stdout;
    for word in [
        "after 20 positions",
        "by part, after 50 positions",
        "| attention output |",
        "| context | ms, m = 1 | b(2)",
        "| 50      |",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    assert!(!text.contains("| drafter"), "{text}");
    let csv = bench(&[&args[..], &["-o", "csv"]].concat()).stdout;
    assert!(csv.contains("\npart_ms,head 8,") && csv.contains("\nb,4 at 50,"), "{csv}");
    assert!(csv.lines().all(|line| line.split(',').count() == 3), "one table: {csv}");
    assert!(csv.contains("\ncontext,,20\n") && csv.contains("\nkv_type,,f16\n"), "{csv}");
    assert!(csv.contains("\nattention_share,at 50,") && csv.contains("\npart_gb_s,head at 50,"), "{csv}");
    let beyond = ran(&["bench", &model("tiny.gguf"), "--contexts", "999999"]);
    assert_eq!(beyond.code, Some(1));
    assert!(beyond.stderr.starts_with("error: bench needs a context of 1000016 positions"), "{}", beyond.stderr);
    // A context that the hint names is one that bench takes.
    let most = beyond.stderr.split("can be up to ").nth(1).expect("a hint").trim().to_owned();
    bench(&["--contexts", &most, "--no-speculation", "--exits", "2"]);
}

#[test]
fn an_exit_that_the_model_lacks_is_an_error() {
    let ran = ran(&["bench", &model("tiny.gguf"), "--exits", "9"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (Some(1), ""));
    assert!(ran.stderr.starts_with("error: --exits 9: the model has 6 layers"), "{}", ran.stderr);
}

#[test]
fn the_table_has_a_line_for_each_draft_length_and_the_batch_that_was_asked_for() {
    let flags = [
        "bench",
        "table",
        &model("tiny.gguf"),
        "-r",
        "1",
        "-n",
        "12",
        "--limit",
        "2",
        "--draft-lens",
        "2,4",
        "--batch",
        "3",
    ];
    let text = ran(&flags);
    assert_eq!(text.code, Some(0), "{text:?}");
    let lines: Vec<&str> = text.stdout.lines().filter(|l| l.starts_with('|')).collect();
    assert!(lines[0].contains("latency b=1") && lines[0].contains("throughput b=3") && lines[0].contains("acceptance"));
    assert_eq!(lines.len(), 2 + 3, "{}", text.stdout);
    for (line, setting) in lines[2..].iter().zip(["plain", "k = 2", "k = 4"]) {
        assert!(line.starts_with(&format!("| {setting} ")), "{line}");
    }
    assert!(text.stdout.contains("layers 0..3 draft, temperature 0.7, 2 prompts, up to 12 tokens"), "{}", text.stdout);
    let json = ran(&[&flags[..], &["-o", "json", "--exit-layer", "2", "--temp", "0"]].concat()).json();
    assert_eq!((json["drafter"].as_str(), json["batch"].as_u64()), (Some("layers 0..2"), Some(3)));
    let lines = json["lines"].as_array().expect("an array");
    assert_eq!(keys(&lines[0]), ["draft_len", "latency_s", "tok_s", "batch_tok_s", "acceptance"]);
    assert!(lines[0]["acceptance"].is_null() && lines[1]["acceptance"].is_number(), "{json}");
    let ran = ran(&["bench", "table", &model("tiny.gguf"), "--exit-layer", "6"]);
    assert!(ran.code == Some(1) && ran.stderr.contains("--exit-layer 6: the model has 6 layers"), "{ran:?}");
}
