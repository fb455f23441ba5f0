//! Standard input as a console, where a panel has nothing else: what `bcnet ctl` takes, one command a line.

use std::io::{self, BufRead, Read, Write};
use std::sync::Arc;
use std::thread;

use bcnet_control::{ControlResponse, Envelope, MAX_REQUEST, Request, render_answer};
use clap::Parser;
use clap::error::ErrorKind;

use super::control_plane::ControlPlane;

/// A command as it is typed.
#[derive(Debug, Parser)]
#[command(
    name = "",
    no_binary_name = true,
    disable_help_flag = true,
    about = "What the server can be asked to do"
)]
struct Command {
    /// Only this session, by name or port
    #[arg(long, value_name = "SESSION", global = true)]
    session: Option<String>,

    #[command(subcommand)]
    request: Request,
}

/// Reads commands until there are no more; the server goes on without.
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
            // The rest of it is no command of its own.
            input.skip_until(b'\n')?;
            writeln!(output, "a line has less than {} KiB", MAX_REQUEST >> 10)?;
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

/// Reads a line. `None` if there is nothing in it.
fn parse(line: &str) -> Option<Result<Command, String>> {
    let words = split_words(line);
    (!words.is_empty()).then(|| Command::try_parse_from(words).map_err(|error| explain(&error)))
}

/// Returns what to say about a line that is no command: help as it is, else what is wrong.
fn explain(error: &clap::Error) -> String {
    let text = error.to_string();
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand) {
        return text;
    }
    let first = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    format!("{first}; `help` lists what there is\n")
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

/// Who does what comes by the console, for the history.
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
        let command = parse("stop --session Two").expect("a command").expect("right");
        assert_eq!((command.session.as_deref(), command.request), (Some("Two"), Request::Stop));
        assert!(parse("\n").is_none());
    }

    #[test]
    fn unknown_command_gives_one_line_and_help_many() {
        for line in ["fly", "kick", "kick a b c", "say"] {
            let problem = parse(line).expect("something").expect_err("wrong");
            assert!(
                problem.ends_with("`help` lists what there is\n") && problem.lines().count() == 1,
                "{problem}"
            );
        }
        let help = parse("help").expect("something").expect_err("not a request");
        assert!(help.contains("players") && help.contains("unmute"), "{help}");
    }
}
