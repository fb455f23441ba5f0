//! Reads commands from standard input, for hosting panels (`bcnet serve --console`).
//!
//! Each line is one command with the syntax of `bcnet ctl`. The answers go to standard output.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::thread;

use bcnet_control::{ControlResponse, Envelope, MAX_REQUEST, Request, render_answer};
use clap::Parser;
use clap::error::ErrorKind;

use super::control_plane::ControlPlane;

/// One line of the console, parsed by `clap`.
#[derive(Debug, Parser)]
#[command(
    name = "",
    no_binary_name = true,
    disable_help_flag = true,
    about = "Commands of the server console"
)]
struct Command {
    /// Only this session, by name or port
    #[arg(long, value_name = "SESSION", global = true)]
    session: Option<String>,

    #[command(subcommand)]
    request: Request,
}

/// Starts the thread that reads commands until standard input is closed. The server keeps running after that.
pub(super) fn start(plane: Arc<ControlPlane>) -> io::Result<()> {
    let listen = move || drop(run(io::stdin().lock(), io::stdout(), &plane));
    thread::Builder::new().name("console".into()).spawn(listen).map(drop)
}

fn run(mut input: impl BufRead, mut output: impl Write, plane: &ControlPlane) -> io::Result<()> {
    loop {
        let mut line = Vec::new();
        if (&mut input).take(MAX_REQUEST).read_until(b'\n', &mut line)? == 0 {
            return Ok(());
        }
        if line.len() as u64 == MAX_REQUEST && !line.ends_with(b"\n") {
            // The rest of the overlong line must not be read as a command.
            input.skip_until(b'\n')?;
            writeln!(output, "line ignored: a command must be shorter than {} KiB", MAX_REQUEST >> 10)?;
            continue;
        }
        let line = String::from_utf8_lossy(&line);
        let command = match parse(&line) {
            None => continue,
            Some(Ok(command)) => command,
            Some(Err(problem)) => {
                output.write_all(problem.as_bytes())?;
                continue;
            }
        };
        let is_stop = command.request == Request::Stop && command.session.is_none();
        let Command { session, request } = command;
        let answer: ControlResponse =
            plane.dispatch(Envelope { session, by: Some(AUTHOR.into()), request }).into();
        match &answer {
            ControlResponse::Ok(answer) => output.write_all(render_answer(answer).as_bytes())?,
            ControlResponse::Error(reason) => writeln!(output, "{reason}")?,
        }
        output.flush()?;
        if is_stop && matches!(answer, ControlResponse::Ok(_)) {
            plane.stop();
        }
    }
}

/// Parses a line. Returns `None` if the line is blank.
fn parse(line: &str) -> Option<Result<Command, String>> {
    let words = split_words(line);
    (!words.is_empty()).then(|| Command::try_parse_from(words).map_err(|error| explain(&error)))
}

/// Returns the text for a line that did not parse: the help of `clap`, or one line of error.
fn explain(error: &clap::Error) -> String {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return text;
    }
    let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    format!("{first}; `help` lists the commands\n")
}

/// Splits a line at blanks, but not between double quotes.
fn split_words(line: &str) -> Vec<String> {
    let (mut words, mut word, mut is_quoted) = (Vec::new(), None::<String>, false);
    for letter in line.trim_end().chars() {
        match letter {
            '"' => {
                is_quoted = !is_quoted;
                word.get_or_insert_default();
            }
            letter if letter.is_whitespace() && !is_quoted => words.extend(word.take()),
            letter => word.get_or_insert_default().push(letter),
        }
    }
    words.extend(word);
    words
}

/// The author of console commands in the history.
const AUTHOR: &str = "console";

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> Request {
        parse(line)
            .expect("a command")
            .map(|command| command.request)
            .unwrap_or_else(|problem| panic!("{problem}"))
    }

    #[test]
    fn line_is_split_at_blanks_outside_quotes() {
        assert_eq!(
            split_words(" kick  \"Jean Luc\" --reason \"\" don't\n"),
            ["kick", "Jean Luc", "--reason", "", "don't"]
        );
        assert!(split_words(" \t\n").is_empty());
        assert_eq!(split_words("say \"open\r\n"), ["say", "open"]);
    }

    #[test]
    fn line_is_parsed_like_ctl_arguments() {
        assert_eq!(request("players"), Request::Players);
        let text = ["don't", "panic"].map(Into::into).to_vec();
        assert_eq!(request("say don't panic"), Request::Say { to: None, text });
        let kick = Request::Kick { player: "Jean Luc".into(), reason: Some("no ramming".into()) };
        assert_eq!(request("kick \"Jean Luc\" --reason \"no ramming\""), kick);
        let command = parse("stop --session Two").expect("a command").expect("valid command");
        assert_eq!((command.session.as_deref(), command.request), (Some("Two"), Request::Stop));
        assert!(parse("\n").is_none());
    }

    #[test]
    fn unknown_command_gives_one_line_and_help_many() {
        for line in ["fly", "kick", "kick a b c", "say"] {
            let problem = parse(line).expect("not blank").expect_err("not a command");
            assert!(
                problem.ends_with("`help` lists the commands\n") && problem.lines().count() == 1,
                "{problem}"
            );
        }
        let help = parse("help").expect("not blank").expect_err("not a request");
        assert!(help.contains("players") && help.contains("unmute"), "{help}");
    }
}
