//! Reports and tables.

use std::fs;

use crate::captures::{RAW, directory, inspect, pcap, session};
use crate::run::bcnet;

#[test]
fn a_report_stands_alone() {
    let directory = directory("report");
    // No file of Windows has such brackets in its name.
    let (name, shown) =
        if cfg!(windows) { ("a&b.pcap", "a&amp;b.pcap") } else { ("<b>.pcap", "&lt;b&gt;.pcap") };
    let (capture, report) = (directory.join(name), directory.join("out.html"));
    fs::write(&capture, pcap(&session(), RAW)).expect("written");
    let [capture, report] = [capture, report].map(|path| path.to_str().expect("UTF-8").to_owned());
    let run = bcnet(&["inspect", &capture, "--report", &report], b"");
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let page = fs::read_to_string(&report).expect("a report");
    assert!(page.contains(shown) && !page.contains("<b>"));
    assert_eq!(page.matches("<svg").count(), 6);
    assert!(page.contains("sent again, after 1.00 s"));
    for from_elsewhere in ["http", "src=", "href=", "<script", "url("] {
        assert!(!page.contains(from_elsewhere), "{from_elsewhere}");
    }
    let run = bcnet(&["inspect", &capture, "--report", &capture], b"");
    assert!(run.code == 2 && run.stderr.contains("is the input"), "{}", run.stderr);
}

#[cfg(not(feature = "parquet"))]
#[test]
fn without_parquet_it_is_told_how_to_get_it() {
    let run = inspect(&pcap(&session(), RAW), &["--parquet", "out.parquet"]);
    assert_eq!((run.code, run.stdout.as_str()), (2, ""));
    assert!(run.stderr.contains("--features parquet"), "{}", run.stderr);
}

#[cfg(feature = "parquet")]
#[test]
fn a_parquet_file_has_a_row_for_each_message() {
    use parquet::file::reader::{FileReader, SerializedFileReader};
    use parquet::record::RowAccessor;

    let directory = directory("parquet");
    let path = directory.join("out.parquet");
    let run = inspect(&pcap(&session(), RAW), &["--parquet", path.to_str().expect("UTF-8")]);
    assert_eq!((run.code, run.stdout.as_str(), run.stderr.as_str()), (0, "", ""));
    let reader = SerializedFileReader::new(fs::File::open(&path).expect("a file")).expect("Parquet");
    let rows: Vec<_> = reader.get_row_iter(None).expect("rows").map(|row| row.expect("a row")).collect();
    let csv = inspect(&pcap(&session(), RAW), &["--csv"]).stdout;
    assert_eq!(rows.len(), csv.lines().count() - 1);
    assert_eq!(rows[0].get_string(5).expect("a kind"), "connect");
}
