//! Why it did not work, in a line that says what to do.

use std::path::Path;

use bcnet_session::client::{ClientState, DisconnectReason, ServerAnomaly};
use bcnet_transport::wire::BootReason;

/// What was noticed on the way.
#[derive(Debug, Default)]
pub(super) struct JoinDiagnosis {
    /// The file that differs, as the server says.
    pub(super) differing_file: Option<String>,
    /// The server has told what is played, so the files are no matter any more.
    pub(super) files_passed: bool,
    /// The last file check had no answer.
    pub(super) check_unanswered: bool,
    /// What the server said that makes no sense.
    pub(super) anomaly: Option<ServerAnomaly>,
}

/// What the user has given, and what the network says.
#[derive(Debug)]
pub(super) struct JoinContext<'a> {
    pub(super) timeout: String,
    pub(super) has_password: bool,
    pub(super) manifest: Option<&'a Path>,
    pub(super) is_unreachable: bool,
}

impl JoinDiagnosis {
    /// Where a client in this state stands in the eyes of people: who has passed the file checks waits for the mission.
    pub(super) fn visible_step(&self, state: ClientState) -> ClientState {
        if state == ClientState::Checking && self.files_passed { ClientState::Loading } else { state }
    }

    /// Returns why it is over.
    pub(super) fn reason(
        &self,
        state: ClientState,
        end: DisconnectReason,
        context: &JoinContext<'_>,
    ) -> String {
        let step = self.visible_step(state);
        match (end, &self.differing_file) {
            (
                DisconnectReason::Booted(_)
                | DisconnectReason::HostLeft
                | DisconnectReason::HostTimedOut
                | DisconnectReason::HandshakeTimedOut,
                Some(file),
            ) => files_differ(file, context),
            (DisconnectReason::Booted(reason), None) => boot_reason(step, reason, context),
            (DisconnectReason::HostTimedOut | DisconnectReason::HandshakeTimedOut, None) => {
                self.timeout_reason(step, context)
            }
            (DisconnectReason::HostLeft, None) if step < ClientState::Lobby => {
                format!("the server has ended, while {step}")
            }
            (DisconnectReason::Left | DisconnectReason::HostLeft | DisconnectReason::Undeliverable, _) => {
                end.to_string()
            }
        }
    }

    fn timeout_reason(&self, step: ClientState, context: &JoinContext<'_>) -> String {
        let JoinContext { timeout, is_unreachable: unreachable, .. } = context;
        let step = match step {
            ClientState::Connecting if *unreachable => {
                return format!("no answer within {timeout}: nobody listens there");
            }
            ClientState::Connecting if self.anomaly.is_none() => {
                return format!("no answer within {timeout}");
            }
            ClientState::Connecting
            | ClientState::Checking
            | ClientState::Loading
            | ClientState::Entering => format!("while {step}"),
            ClientState::Lobby | ClientState::InGame | ClientState::Gone => {
                return "nothing is heard of the server any more".into();
            }
        };
        match self.anomaly {
            Some(what) => format!("the server speaks nonsense, {what} for example: no way in, {step}"),
            None if self.check_unanswered => {
                format!(
                    "the server asks about files that it has no answer for: no way in within {timeout}, {step}"
                )
            }
            None => format!("the server stopped, {step}: no way in within {timeout}"),
        }
    }
}

fn files_differ(file: &str, context: &JoinContext<'_>) -> String {
    let advice = match context.manifest {
        Some(path) => format!("{} is of an installation that this server does not take", path.display()),
        None => {
            "it takes only certain installations; --manifest FILE with one of them (bcnet manifest learn)"
                .into()
        }
    };
    format!("files differ: {file}: {advice}")
}

fn boot_reason(step: ClientState, reason: BootReason, context: &JoinContext<'_>) -> String {
    let entered = step >= ClientState::Lobby;
    match reason {
        BootReason::WRONG_PASSWORD if context.has_password => "wrong password".into(),
        BootReason::WRONG_PASSWORD => "it wants a password: --password".into(),
        BootReason::FULL => "the server is full".into(),
        BootReason::BANNED => "banned from this server".into(),
        BootReason::KICKED if entered => "kicked".into(),
        BootReason::KICKED => "kicked a moment ago: try again in a few seconds".into(),
        BootReason::TIMED_OUT => format!("thrown out: the server has not heard enough, while {step}"),
        BootReason::DEFAULT if step == ClientState::Connecting => {
            "refused: the round is over, or the server does not say why".into()
        }
        BootReason::DEFAULT => "thrown out: the server does not say why".into(),
        other => format!("thrown out: {other}"),
    }
}
