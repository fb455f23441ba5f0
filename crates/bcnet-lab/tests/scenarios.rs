//! Scenario files: error messages, expectations of the built-in scenarios, and documentation of all keys.

use std::fs;
use std::path::{Path, PathBuf};

use bcnet_lab::scenario::EngineKind;
use bcnet_lab::{Metric, RunOptions, Scenario};

/// Every built-in scenario meets its expectations on both engines, and has at least one expectation.
#[test]
fn all_expectations_are_met_on_both_engines() {
    let mut missed = Vec::new();
    for (name, scenario) in scenarios() {
        let mut checked = 0;
        for engine in [EngineKind::Stock, EngineKind::Bcnet] {
            let outcome =
                bcnet_lab::run(&scenario, &RunOptions { engine: Some(engine), ..RunOptions::default() });
            checked += outcome.expectation_count(&scenario);
            missed.extend(
                outcome
                    .missed_expectations(&scenario)
                    .into_iter()
                    .map(|missed| (name.clone(), engine, missed)),
            );
        }
        // Scenarios that mix both engines are for comparison only.
        assert!(checked > 0 || name.contains("-bcnet-"), "{name} has no expectation");
    }
    assert!(missed.is_empty(), "{missed:#?}");
}

/// The same seed gives the same run, byte for byte; another seed gives another run.
#[test]
fn a_run_depends_on_its_seed_alone() {
    let (_, scenario) = scenarios()
        .into_iter()
        .find(|(name, _)| name == "battle-loss5")
        .expect("the scenario `battle-loss5` exists");
    for engine in [EngineKind::Stock, EngineKind::Bcnet] {
        let run = |seed| {
            let options = RunOptions { engine: Some(engine), seed: Some(seed), ..RunOptions::default() };
            let outcome = bcnet_lab::run(&scenario, &options);
            (outcome.fingerprint, outcome.total_counters())
        };
        assert_eq!(run(7), run(7), "{engine}");
        assert_ne!(run(7).0, run(8).0, "{engine}");
    }
}

/// Changing a constant of the stock engine breaks the predictions that depend on it.
#[test]
fn predictions_fail_when_a_constant_is_changed() {
    let fails = |name: &str, setting: &str| {
        let text = fs::read_to_string(directory().join(name).with_extension("toml")).expect("there");
        let changed = text.replacen("role = \"host\"\n", &format!("role = \"host\"\n{setting}\n"), 1);
        assert_ne!(text, changed, "{name} has no host node to change");
        let scenario = Scenario::parse(&changed).expect("the changed scenario is valid");
        !bcnet_lab::run(&scenario, &RunOptions::default()).missed_expectations(&scenario).is_empty()
    };
    for (setting, names) in [
        ("last_ack = 8", &["p01", "p03", "p07"][..]),
        ("gate = \"always\"", &["p01", "p07", "p09"]),
        ("gate = \"never\"", &["p01", "p03", "p07"]),
        ("ack_step = 0.7", &["p01", "p03", "p07"]),
        ("free_acks = 4", &["p01", "p07"]),
    ] {
        for name in names {
            assert!(fails(name, setting), "{name} still meets its expectations with {setting}");
        }
    }
}

/// The meter counts useful ACKs on the wire as the stock engine counts them itself.
#[test]
fn an_ack_is_useful_once() {
    let (_, scenario) =
        scenarios().into_iter().find(|(name, _)| name == "p17").expect("the scenario `p17` exists");
    let outcome = bcnet_lab::run(&scenario, &RunOptions { trace: true, ..RunOptions::default() });
    let useful = outcome.ack_trace.iter().filter(|(_, handled)| handled.useful).count();
    let empty = outcome.ack_trace.iter().filter(|(_, handled)| handled.waiting.is_empty()).count();
    assert_eq!((outcome.ack_trace.len(), useful), (900, 100));
    assert_eq!(empty as u64, outcome.total_counters().empty_acks);
    let line = outcome.ack_trace[0].1.to_string();
    assert!(line.contains("HandleACK: ack seq=0x0000 below32=0 | retxQ=1"), "{line}");
}

/// If every comparison takes time, the next frame is late.
#[test]
fn comparison_cost_delays_the_next_frame() {
    let messages: Vec<String> = (0..20).map(|seq| format!("\"32 06 80 {seq:02X} 00 2A\"")).collect();
    let text = format!(
        "title = \"t\"\nduration = 5.0\n\
         [[node]]\nname = \"host\"\nrole = \"host\"\ncomparison_cost = 0.01\n\
         [[node]]\nname = \"client\"\nrole = \"nobody\"\n\
         [[inject]]\nat = 0.0\ninto = \"host\"\nfrom = \"client\"\nid = 2\nmessages = [{}]\n\
         [[expect]]\nfigure = {{ of = \"comparisons\" }}\nis = 190\n\
         [[expect]]\nfigure = {{ of = \"datagram_times\", until = 2.0 }}\nis = [1.902]\n",
        messages.join(", ")
    );
    let scenario = Scenario::parse(&text).expect("the scenario is valid");
    let missed = bcnet_lab::run(&scenario, &RunOptions::default()).missed_expectations(&scenario);
    assert!(missed.is_empty(), "{missed:#?}");
}

#[test]
fn errors_name_the_line_and_the_nearest_name() {
    let node = "[[node]]\nname = \"host\"\nrole = \"host\"\n";
    let with = |text: &str| format!("title = \"t\"\nduration = 10.0\n{node}{text}");
    for (text, line, part) in [
        (with("tik = 0.003"), 6, "unknown key `tik`; did you mean `tick`?"),
        (with("[[sendd]]\nat = 1"), 6, "unknown key `sendd`; did you mean `send`?"),
        (
            with("[[dump]]\nat = 11\nnode = \"host\""),
            7,
            "11 is outside the scenario, which lasts from 0 to 10 seconds",
        ),
        (with("[[dump]]\nat = -1\nnode = \"host\""), 7, "-1 is outside the scenario"),
        (with("[[dump]]\nat = nan\nnode = \"host\""), 7, "NaN is outside the scenario"),
        (with("[[dump]]\nat = 1\nnode = \"hots\""), 8, "unknown node `hots`; did you mean `host`?"),
        (with("[[leave]]\nat = 1\nnode = \"nowhere\""), 8, "unknown node `nowhere`; known: host"),
        (with("engine = \"stok\""), 6, "unknown engine `stok`; did you mean `stock`?"),
        (with("tick = 0.0000001"), 6, "shorter than 100 microseconds"),
        (with("tick = 0.1\nhz = 10"), 7, "cannot have both `tick` and `hz`"),
        (with("[[link]]\nloss = 1.5"), 7, "1.5 is out of range"),
        (
            with("[[send]]\nat = 0\nfrom = \"host\"\nsize = 5\nrate = 9000\ncount = 40000"),
            10,
            "this table sends more than",
        ),
        (with("[[send]]\nat = 1\nfrom = \"host\""), 6, "needs either `size` or `bytes`"),
        (with("[[send]]\nat = 1\nfrom = \"host\"\nbytes = \"2A 2\""), 9, "not hex"),
        (
            with("[[expect]]\nfigure = { of = \"ack_byte\" }\nis = 1"),
            7,
            "unknown figure `ack_byte`; did you mean `ack_bytes`?",
        ),
        (with("[[expect]]\nfigure = { of = \"acks\" }\nis = 1"), 7, "add `at` and `node`"),
        (with("[[expect]]\nfigure = { of = \"bytes\" }"), 6, "an [[expect]] table needs either `is`"),
        (with("[[traffic]]\npattern = \"batle\""), 7, "unknown pattern `batle`; did you mean `battle`?"),
        (with(node), 4, "two nodes have the name `host`"),
        ("title = \"t\"\nduration = 1e99\n".to_owned() + node, 2, "is out of range: a duration must be"),
        ("title = \"t\"\nduration = 1\n".into(), 1, "1 to 125 [[node]] tables"),
        ("title = \"t\nduration = 1\n".into(), 1, ""),
        ("duration = 1\n".into(), 1, "missing field `title`"),
    ] {
        let mistake = Scenario::parse(&text).expect_err(&text);
        assert!(mistake.message.contains(part), "{text}\n{mistake}");
        assert_eq!(mistake.line, line, "{text}\n{mistake}");
        assert!(!mistake.message.contains('\n'), "{mistake}");
    }
}

/// A truncated scenario parses or gives an error; it never panics.
#[test]
fn truncated_scenario_does_not_panic() {
    let text = fs::read_to_string(directory().join("p01.toml")).expect("p01.toml exists");
    for end in (0..text.len()).filter(|end| text.is_char_boundary(*end)) {
        drop(Scenario::parse(&text[..end]));
    }
}

/// docs/reference/scenarios.md has every key and every figure, in code quotes.
#[test]
fn every_key_and_metric_is_documented() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/reference/scenarios.md");
    let docs = fs::read_to_string(path).expect("the documentation");
    // The error for an unknown key lists the known keys.
    let head = "title = \"t\"\nduration = 1\n";
    let tables = [
        "",
        "[claim]",
        "[[node]]",
        "[[proxy]]",
        "[[link]]",
        "[[send]]",
        "[[inject]]",
        "[[traffic]]",
        "[[leave]]",
        "[[unwritable]]",
        "[[dump]]",
        "[[expect]]",
        "[[expect]]\nfigure.of = \"x\"\nfigure.xyzzy",
    ];
    let mut keys = 0;
    for table in tables {
        let text = if table.ends_with("xyzzy") {
            format!("{head}{table} = 1")
        } else {
            format!("{head}{table}\nxyzzyxyzzyxyzzy = 1")
        };
        let mistake = Scenario::parse(&text).expect_err("an unknown key");
        let (_, known) =
            mistake.message.split_once("known: ").unwrap_or_else(|| panic!("{table}: {mistake}"));
        for key in known.split(", ") {
            assert!(
                docs.contains(&format!("`{key}`")),
                "docs/reference/scenarios.md does not explain `{key}` of {table:?}"
            );
            keys += 1;
        }
    }
    assert!(keys > 70, "{keys}");
    for metric in Metric::ALL {
        let name = metric.name();
        assert!(
            docs.contains(&format!("`{name}`")),
            "docs/reference/scenarios.md does not explain the figure `{name}`"
        );
    }
}

fn directory() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios")
}

fn scenarios() -> Vec<(String, Scenario)> {
    let files = fs::read_dir(directory()).expect("scenarios").map(|file| file.expect("readable").path());
    let mut files: Vec<PathBuf> = files.collect();
    files.sort();
    let read = |path: PathBuf| {
        let name = path.file_stem().expect("named").to_string_lossy().into_owned();
        let text = fs::read_to_string(&path).expect("readable");
        let scenario = Scenario::parse(&text).unwrap_or_else(|mistake| panic!("{name}: {mistake}"));
        (name, scenario)
    };
    files.into_iter().map(read).collect()
}
