//! Tests reports and tables.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::captures::{RAW, inspect, packet, pcap, session, test_directory};
use crate::finding_locations::battle;
use crate::run::bcnet;

/// Returns the page of a capture, and the data that its script reads.
fn write_report(directory: &Path, capture: &[u8], flags: &[&str]) -> (String, Value) {
    let page = directory.join("out.html");
    let run = inspect(capture, &[&["--report", page.to_str().expect("UTF-8")], flags].concat());
    assert_eq!((run.code, run.stdout.as_str()), (0, ""), "{}", run.stderr);
    let page = fs::read_to_string(&page).expect("a report");
    let (_, data) = page.split_once("<script type=application/json id=data>").expect("data");
    let data = data.split_once("</script>").expect("its end").0;
    let data = serde_json::from_str(data).expect("JSON");
    (page, data)
}

#[test]
fn report_is_self_contained() {
    let directory = test_directory("report");
    // Windows does not allow these brackets in file names.
    let (name, shown) =
        if cfg!(windows) { ("a&b.pcap", "a&amp;b.pcap") } else { ("<b>.pcap", "&lt;b&gt;.pcap") };
    let (capture, report) = (directory.join(name), directory.join("out.html"));
    fs::write(&capture, pcap(&session(), RAW)).expect("written");
    let [capture, report] = [capture, report].map(|path| path.to_str().expect("UTF-8").to_owned());
    let run = bcnet(&["inspect", &capture, "--report", &report], b"");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.contains(shown) && !page.contains("<b>"));
    assert!(page.contains("sent again, after 1.00 s"));
    assert!(page.contains("All 24 datagrams are in this page with their bytes."), "the list of omissions");
    // Only the page's own scripts run, and the page loads nothing from the network.
    assert!(page.contains("default-src 'none'") && page.matches("<script").count() == 2);
    for from_elsewhere in ["https:", "src=", "url(", "@import", "fetch(", "XMLHttpRequest"] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    // The SVG namespace is a name, not an address.
    assert_eq!(page.matches("http:").count(), page.matches("http://www.w3.org/2000/svg").count());
    let run = bcnet(&["inspect", &capture, "--report", &capture], b"");
    assert!(run.code == 2 && run.stderr.contains("is the input"), "{}", run.stderr);
}

#[test]
fn report_links_a_finding_to_every_sending_of_its_message() {
    let (_, data) = write_report(&test_directory("report-findings"), &pcap(&session(), RAW), &[]);
    let findings = data["findings"].as_array().expect("findings");
    let again = findings.iter().find(|finding| {
        finding["text"].as_str().is_some_and(|text| text.contains("sent again") || text.contains("2nd time"))
    });
    let again = again.unwrap_or_else(|| panic!("{findings:?}"));
    // Two sends and the ACK.
    let about: Vec<u64> =
        again["about"].as_array().expect("packets").iter().filter_map(Value::as_u64).collect();
    assert_eq!(about.len(), 3, "{again}");
    assert_eq!(again["packet"].as_u64(), about.get(1).copied(), "{again}");
    let datagrams = data["datagrams"].as_array().expect("datagrams");
    for (number, hex) in
        about.iter().zip(["02 01 32 0E 80 02 00", "02 01 32 0E 80 02 00", "01 01 01 02 00 00"])
    {
        let datagram = datagrams.iter().find(|datagram| datagram["n"].as_u64() == Some(*number));
        let shown = datagram.expect("kept")["hex"].as_str().expect("bytes").to_owned();
        assert!(shown.starts_with(&hex.replace(' ', "").to_lowercase()), "{number}: {shown}");
    }
    let chat = datagrams.iter().find(|datagram| datagram["n"].as_u64() == Some(about[0])).expect("kept");
    let fields: Vec<(&str, &str)> = chat["messages"][0][4]
        .as_array()
        .expect("fields")
        .iter()
        .filter_map(|field| {
            let name = data["fields"][usize::try_from(field[2].as_u64()?).ok()?][0].as_str()?;
            Some((name, field[3].as_str()?))
        })
        .collect();
    assert!(fields.contains(&("sequence", "2")) && fields.contains(&("opcode", "0x2C Chat")), "{fields:?}");
}

#[test]
fn captured_text_cannot_inject_script_into_a_report() {
    let say = |words: &str| {
        let hex: String = words.bytes().map(|byte| format!(" {byte:02X}")).collect();
        let (size, length) = (12 + words.len(), words.len());
        packet(3.0, &format!("02 01 32 {size:02X} 80 08 00 2C 02 00 00 00 {length:02X} 00{hex}"))
    };
    let mut packets = session();
    packets.push(say("</script><script>alert(1)</script>"));
    packets.push(say("<!--<script>"));
    let (page, data) = write_report(&test_directory("report-hostile"), &pcap(&packets, RAW), &[]);
    assert_eq!(page.matches("<script").count(), 2);
    assert!(!page.contains("<!--") && page.contains("\\u003c/script>"));
    assert!(data.to_string().contains("</script><script>alert(1)</script>"));
}

/// A page has a bounded size, and lists its omissions.
#[test]
fn report_size_is_bounded_and_omissions_are_listed() {
    let (page, data) = write_report(&test_directory("report-many"), &pcap(&battle(600.0, 0.05), RAW), &[]);
    assert!(page.len() < 5_000_000, "{}", page.len());
    assert!(page.contains(" datagrams are in this page with their bytes: those of the listed findings"));
    assert!(page.contains(" stale ACKs are listed, evenly spaced."));
    let kinds = data["kinds"].as_array().expect("kinds");
    for (place, kind) in kinds.iter().enumerate() {
        let listed = data["findings"].as_array().expect("findings").iter();
        let listed = listed.filter(|finding| finding["kind"].as_u64() == Some(place as u64)).count() as u64;
        let count = kind["count"].as_u64().expect("a number");
        assert!((1..=count.min(80)).contains(&listed), "{kind}: {listed}");
    }
    assert_eq!(data["talks"].as_array().map(Vec::len), Some(3));
    let sent = |detail: &Value| {
        let numbers = detail["sides"][0]["bytes"].as_array().expect("bytes");
        numbers.iter().filter_map(Value::as_u64).sum::<u64>()
    };
    let each: u64 = (0..3).map(|talk| sent(&data["talks"][talk]["detail"])).sum();
    assert!(each > 0 && each == sent(&data["all"]));
}

#[cfg(not(feature = "parquet"))]
#[test]
fn missing_parquet_support_is_explained() {
    let run = inspect(&pcap(&session(), RAW), &["--parquet", "out.parquet"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("--features parquet"), "{}", run.stderr);
}
