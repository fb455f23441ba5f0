//! Tests output on a terminal, and output whose reader closes the pipe.

use std::fs;
use std::io::{BufRead, BufReader};

use crate::captures::{RAW, pcap, test_directory};
use crate::finding_locations::battle;
use crate::run::command;

/// A reader that closes the pipe after the first line gets no error, in any format.
#[test]
fn closed_output_pipe_ends_the_run_cleanly() {
    let directory = test_directory("enough");
    let [file, annotated, report] =
        ["in.pcap", "out.pcapng", "out.html"].map(|name| directory.join(name).display().to_string());
    fs::write(&file, pcap(&battle(60.0, 0.1), RAW)).expect("written");
    let read_one = |flags: &[&str]| {
        let mut child = command(&[&["inspect", &file], flags].concat()).spawn().expect("bcnet starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        drop(stdout);
        let output = crate::run::wait_with_output(child);
        let code = output.status.code();
        let stderr = String::from_utf8(output.stderr).expect("UTF-8");
        assert_eq!((code, stderr.as_str()), (Some(0), ""), "{flags:?}");
        assert!(line.ends_with('\n'), "{flags:?}: {line}");
    };
    for flags in
        [&[][..], &["--json"], &["--csv"], &["--summary"], &["--ladder"], &["--handle-acks"], &["--explain"]]
    {
        read_one(flags);
    }
    // Files are completed anyway.
    read_one(&["--json", "--write", &annotated, "--report", &report]);
    let shown = |file: &str| command(&["inspect", file, "--csv"]).output().expect("bcnet runs").stdout;
    assert!(shown(&annotated) == shown(&file));
    assert!(fs::read_to_string(&report).expect("a report").trim_end().ends_with("</html>"));
}

/// Runs commands on a terminal that the program `script` makes.
#[cfg(target_os = "linux")]
mod pseudo {
    use std::fs;
    use std::io::{self, Write};
    use std::process::{Command, Stdio};

    use crate::captures::{RAW, inspect, packet, pcap, session, test_directory};

    /// Returns the output on a terminal with this many columns, without line ends.
    fn on_terminal(columns: u32, before: &str, file: &str, flags: &str) -> Vec<String> {
        let bcnet = env!("CARGO_BIN_EXE_bcnet");
        let command = format!("stty cols {columns} rows 24; {before} '{bcnet}' inspect '{file}' {flags}");
        let output = Command::new("script")
            .args(["-q", "-e", "-c", &command, "/dev/null"])
            .env_remove("NO_COLOR")
            .stdin(Stdio::null())
            .output()
            .expect("script runs");
        let text = String::from_utf8(output.stdout).expect("UTF-8");
        assert!(output.status.success(), "{command}: {text}");
        text.lines().map(|line| line.trim_end_matches('\r').to_owned()).collect()
    }

    /// Returns a line without its colours.
    fn without_colors(line: &str) -> String {
        let mut pieces = line.split('\x1b');
        let first = pieces.next().unwrap_or_default().to_owned();
        pieces.fold(first, |all, piece| all + piece.split_once('m').map_or("", |(_, text)| text))
    }

    /// Returns a line cut to this many columns.
    fn truncated_line(line: &str, columns: usize) -> String {
        match line.char_indices().nth(columns) {
            Some(_) => line.chars().take(columns - 1).chain(['…']).collect(),
            None => line.to_owned(),
        }
    }

    /// Returns the lines on a narrow terminal: the common prefix of a datagram's lines is above them once.
    fn expected_on_narrow_terminal(lines: &[String], columns: usize) -> Vec<String> {
        let (mut folded, mut last) = (Vec::new(), "");
        for line in lines {
            let Some(addresses) = line.find(" > ") else {
                let (_, finding) = line.split_once(" ! ").expect("a finding");
                folded.push(truncated_line(&format!("     ! {finding}"), columns));
                continue;
            };
            let end = addresses + line[addresses..].find("  ").expect("the message");
            if line[..end] != *last {
                last = &line[..end];
                folded.push(last.to_owned());
            }
            folded.push(truncated_line(&format!("       {}", &line[end + 2..]), columns));
        }
        folded
    }

    #[test]
    fn terminal_gets_colors_and_lines_that_fit() {
        if Command::new("script").arg("--version").output().is_err() {
            let _ = io::stderr().write_all(b"\n*** SKIPPED: there is no `script` to make a terminal ***\n");
            return;
        }
        let file = test_directory("terminal").join("in.pcap");
        let mut packets = session();
        let letters = "41 ".repeat(200);
        packets.push(packet(3.0, &format!("02 01 32 D4 80 09 00 2C 02 00 00 00 C8 00 {letters}")));
        let capture = pcap(&packets, RAW);
        fs::write(&file, &capture).expect("written");
        let file = file.to_str().expect("UTF-8");
        let whole: Vec<String> = inspect(&capture, &[]).stdout.lines().map(str::to_owned).collect();
        assert!(whole.iter().any(|line| line.chars().count() > 200), "{whole:?}");
        let is_coloured = |lines: &[String]| lines.iter().any(|line| line.contains('\x1b'));
        for (before, flags, colours) in [
            ("", "", true),
            ("NO_COLOR=1", "", false),
            ("NO_COLOR=", "", true),
            ("", "--color never", false),
            ("NO_COLOR=1", "--color always", true),
        ] {
            let wide = on_terminal(1000, before, file, flags);
            assert_eq!(is_coloured(&wide), colours, "{before} {flags}");
            assert_eq!(
                wide.iter().map(|line| without_colors(line)).collect::<Vec<_>>(),
                whole,
                "{before} {flags}"
            );
            let cut = on_terminal(120, before, file, flags);
            assert_eq!((cut.len(), is_coloured(&cut)), (whole.len(), colours), "{before} {flags}");
            for (line, whole) in cut.iter().map(|line| without_colors(line)).zip(&whole) {
                assert_eq!(line, truncated_line(whole, 120));
            }
            let narrow = on_terminal(90, before, file, flags);
            assert_eq!(is_coloured(&narrow), colours, "{before} {flags}");
            assert_eq!(
                narrow.iter().map(|line| without_colors(line)).collect::<Vec<_>>(),
                expected_on_narrow_terminal(&whole, 90)
            );
        }
        // Other formats have neither colours nor cut lines.
        for flags in ["--json", "--csv", "--summary"] {
            let shown = on_terminal(90, "", file, flags);
            let piped = inspect(&capture, &[flags]).stdout.replace("standard input", file);
            assert_eq!(shown, piped.lines().collect::<Vec<_>>(), "{flags}");
        }
    }
}
