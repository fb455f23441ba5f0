//! Why it did not work, in a line that says what to do.

use std::path::Path;

use bcnet_session::client::{End, Nonsense, State};
use bcnet_transport::wire::BootReason;

/// What was noticed on the way.
#[derive(Debug, Default)]
pub(super) struct Failure {
    /// The file that differs, as the server says.
    pub(super) file: Option<String>,
    /// The server has told what is played, so the files are no matter any more.
    pub(super) files_passed: bool,
    /// The last file check had no answer.
    pub(super) unanswered: bool,
    /// What the server said that makes no sense.
    pub(super) nonsense: Option<Nonsense>,
}

/// What the user has given, and what the network says.
#[derive(Debug)]
pub(super) struct Given<'a> {
    pub(super) timeout: String,
    pub(super) password: bool,
    pub(super) manifest: Option<&'a Path>,
    pub(super) unreachable: bool,
}

impl Failure {
    /// Where a client in this state stands in the eyes of people: who has passed the file checks waits for the mission.
    pub(super) fn step(&self, state: State) -> State {
        if state == State::Checking && self.files_passed { State::Loading } else { state }
    }

    /// Returns why it is over.
    pub(super) fn why(&self, state: State, end: End, given: &Given<'_>) -> String {
        let step = self.step(state);
        match (end, &self.file) {
            (End::Booted(_) | End::HostLeft | End::HostSilent | End::Stalled, Some(file)) => {
                files_differ(file, given)
            }
            (End::Booted(reason), None) => booted(step, reason, given),
            (End::HostSilent | End::Stalled, None) => self.stopped(step, given),
            (End::HostLeft, None) if step < State::Lobby => format!("the server has ended, while {step}"),
            (End::Left | End::HostLeft | End::Undeliverable, _) => end.to_string(),
        }
    }

    fn stopped(&self, step: State, given: &Given<'_>) -> String {
        let Given { timeout, unreachable, .. } = given;
        let step = match step {
            State::Connecting if *unreachable => {
                return format!("no answer within {timeout}: nobody listens there");
            }
            State::Connecting if self.nonsense.is_none() => return format!("no answer within {timeout}"),
            State::Connecting | State::Checking | State::Loading | State::Entering => format!("while {step}"),
            State::Lobby | State::InGame | State::Gone => {
                return "nothing is heard of the server any more".into();
            }
        };
        match self.nonsense {
            Some(what) => format!("the server speaks nonsense, {what} for example: no way in, {step}"),
            None if self.unanswered => {
                format!(
                    "the server asks about files that it has no answer for: no way in within {timeout}, {step}"
                )
            }
            None => format!("the server stopped, {step}: no way in within {timeout}"),
        }
    }
}

fn files_differ(file: &str, given: &Given<'_>) -> String {
    let advice = match given.manifest {
        Some(path) => format!("{} is of an installation that this server does not take", path.display()),
        None => {
            "it takes only certain installations; --manifest FILE with one of them (bcnet manifest learn)"
                .into()
        }
    };
    format!("files differ: {file}: {advice}")
}

fn booted(step: State, reason: BootReason, given: &Given<'_>) -> String {
    let entered = step >= State::Lobby;
    match reason {
        BootReason::WRONG_PASSWORD if given.password => "wrong password".into(),
        BootReason::WRONG_PASSWORD => "it wants a password: --password".into(),
        BootReason::FULL => "the server is full".into(),
        BootReason::BANNED => "banned from this server".into(),
        BootReason::KICKED if entered => "kicked".into(),
        BootReason::KICKED => "kicked a moment ago: try again in a few seconds".into(),
        BootReason::TIMED_OUT => format!("thrown out: the server has not heard enough, while {step}"),
        BootReason::DEFAULT if step == State::Connecting => {
            "refused: the round is over, or the server does not say why".into()
        }
        BootReason::DEFAULT => "thrown out: the server does not say why".into(),
        other => format!("thrown out: {other}"),
    }
}
