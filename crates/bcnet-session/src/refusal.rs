//! The reasons why a client may not join, and their counts ([S-10] to [S-15]).
//!
//! [S-10]: bcnet_transport::wire::protocol#s-10
//! [S-15]: bcnet_transport::wire::protocol#s-15

use bcnet_transport::wire::BootReason;

/// The reason why a client may not join.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum JoinRefusal {
    /// The address is banned ([S-10]).
    ///
    /// [S-10]: bcnet_transport::wire::protocol#s-10
    Banned,
    /// There is a whitelist, and the address is not on it ([S-15]).
    ///
    /// [S-15]: bcnet_transport::wire::protocol#s-15
    NotWhitelisted,
    /// The address was kicked a moment ago ([S-52]).
    ///
    /// [S-52]: bcnet_transport::wire::protocol#s-52
    Kicked,
    /// The password is wrong or missing ([S-11]).
    ///
    /// [S-11]: bcnet_transport::wire::protocol#s-11
    WrongPassword,
    /// The round is over ([S-12]).
    ///
    /// [S-12]: bcnet_transport::wire::protocol#s-12
    RoundOver,
    /// All slots are taken ([S-12]).
    ///
    /// [S-12]: bcnet_transport::wire::protocol#s-12
    Full,
    /// The address already has the maximum number of players ([S-13]), which is the value.
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    AddressLimit(usize),
    /// The /16 network already has the maximum number of players ([S-13]), which is the value.
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    NetworkLimit(usize),
    /// The address or its network joins too often ([S-13]).
    ///
    /// [S-13]: bcnet_transport::wire::protocol#s-13
    JoinRate,
}

impl JoinRefusal {
    /// The stable names of all reasons for logs and metrics, in the order of the variants.
    pub const NAMES: [&str; 9] = [
        "banned",
        "not_whitelisted",
        "kicked",
        "wrong_password",
        "round_over",
        "full",
        "address_limit",
        "network_limit",
        "join_rate",
    ];

    const fn index(self) -> usize {
        match self {
            Self::Banned => 0,
            Self::NotWhitelisted => 1,
            Self::Kicked => 2,
            Self::WrongPassword => 3,
            Self::RoundOver => 4,
            Self::Full => 5,
            Self::AddressLimit(_) => 6,
            Self::NetworkLimit(_) => 7,
            Self::JoinRate => 8,
        }
    }

    /// Returns the stable name of the reason for logs and metrics.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::NAMES.get(self.index()).copied().unwrap_or_default()
    }

    /// Returns the name of the setting that caused the refusal, if a limit of players did.
    #[must_use]
    pub const fn setting(self) -> Option<&'static str> {
        match self {
            Self::AddressLimit(_) => Some("players_per_address"),
            Self::NetworkLimit(_) => Some("players_per_network"),
            _ => None,
        }
    }

    /// Returns the boot reason for the client: `DEFAULT` if the protocol has none for the refusal.
    pub(crate) const fn boot_reason(self) -> BootReason {
        match self {
            Self::Banned => BootReason::BANNED,
            Self::Kicked => BootReason::KICKED,
            Self::WrongPassword => BootReason::WRONG_PASSWORD,
            Self::Full => BootReason::FULL,
            Self::NotWhitelisted
            | Self::RoundOver
            | Self::AddressLimit(_)
            | Self::NetworkLimit(_)
            | Self::JoinRate => BootReason::DEFAULT,
        }
    }

    /// Returns the text for the client, if no boot reason says the same.
    pub(crate) fn text(self) -> Option<String> {
        let text = match self {
            Self::AddressLimit(max) => {
                format!(
                    "{max} players from your address are here already; the host can raise players_per_address"
                )
            }
            Self::NetworkLimit(max) => {
                format!(
                    "{max} players from your network are here already; the host can raise players_per_network"
                )
            }
            Self::JoinRate => "your address or network joins too often; try again in five seconds".into(),
            Self::NotWhitelisted
            | Self::RoundOver
            | Self::Banned
            | Self::Kicked
            | Self::WrongPassword
            | Self::Full => return None,
        };
        Some(format!("{REFUSAL_PREFIX}{text}"))
    }
}

/// The beginning of a refusal's text. In the same message, a text without it names a file that differs ([S-24]).
///
/// [S-24]: bcnet_transport::wire::protocol#s-24
pub const REFUSAL_PREFIX: &str = "Refused: ";

/// The number of refusals for each reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Refusals([u64; JoinRefusal::NAMES.len()]);

impl Refusals {
    /// Returns the number of all refusals.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the name of each reason, and the number of refusals for it.
    pub fn by_reason(&self) -> impl Iterator<Item = (&'static str, u64)> {
        JoinRefusal::NAMES.into_iter().zip(self.0)
    }

    pub(crate) fn add(&mut self, refusal: JoinRefusal) {
        if let Some(count) = self.0.get_mut(refusal.index()) {
            *count += 1;
        }
    }
}
