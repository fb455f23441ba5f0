//! The browsers that are logged in, and the rate limit of login attempts.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bcnet_session::{Rate, TokenBucket};
use bcnet_transport::Time;

use super::secret::{Secret, Token};

/// The browsers that are logged in.
#[derive(Debug)]
pub(super) struct Logins {
    token: Token,
    idle: Duration,
    lifetime: Duration,
    logins: Vec<Login>,
    /// Rate limiters of the addresses with recent attempts, the latest at the back.
    attempts: VecDeque<(IpAddr, TokenBucket)>,
}

/// The login of one browser.
#[derive(Debug)]
struct Login {
    id: Secret,
    csrf: Secret,
    by: String,
    created: Time,
    last_used: Time,
    flash: Option<FlashMessage>,
}

/// The result of an operator's action, shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct FlashMessage {
    pub(super) text: String,
    pub(super) is_refusal: bool,
}

/// An operator who is logged in.
#[derive(Debug)]
pub(super) struct Operator {
    /// The name that the operator entered.
    pub(super) by: String,
    /// The value that every form of this login must send back.
    pub(super) csrf: Secret,
    pub(super) flash: Option<FlashMessage>,
}

/// The reason why a login failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoginError {
    WrongToken,
    /// The address made too many attempts.
    TooManyAttempts,
}

/// The origin of a request: a person, or the script of the page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Initiator {
    /// A person opened a page or sent a form.
    User,
    /// The script of the page asked for new values. The person may be away.
    Script,
}

impl Logins {
    pub(super) const fn new(token: Token, idle: Duration, lifetime: Duration) -> Self {
        Self { token, idle, lifetime, logins: Vec::new(), attempts: VecDeque::new() }
    }

    /// Logs a browser in if the token is right. Returns the value of its cookie.
    pub(super) fn log_in(
        &mut self,
        guess: &str,
        by: &str,
        from: IpAddr,
        now: Time,
    ) -> io::Result<Result<Secret, LoginError>> {
        if !self.allow_attempt(from, now) {
            return Ok(Err(LoginError::TooManyAttempts));
        }
        if !self.token.matches(guess) {
            return Ok(Err(LoginError::WrongToken));
        }
        self.attempts.retain(|(other, _)| *other != rate_limit_key(from));
        self.remove_expired(now);
        if self.logins.len() == MAX_LOGINS
            && let Some(oldest) =
                (0..self.logins.len()).min_by_key(|at| self.logins.get(*at).map(|one| one.last_used))
        {
            self.logins.remove(oldest);
        }
        let (id, csrf) = (Secret::new()?, Secret::new()?);
        self.logins.push(Login {
            id: id.clone(),
            csrf,
            by: by.into(),
            created: now,
            last_used: now,
            flash: None,
        });
        Ok(Ok(id))
    }

    fn allow_attempt(&mut self, from: IpAddr, now: Time) -> bool {
        let from = rate_limit_key(from);
        let known = self.attempts.iter().position(|(other, _)| *other == from);
        let known = known.and_then(|at| self.attempts.remove(at));
        let mut bucket = known.map_or_else(|| TokenBucket::new(ATTEMPT_RATE, now), |(_, bucket)| bucket);
        let is_allowed = bucket.take(1, ATTEMPT_RATE, now);
        if self.attempts.len() == MAX_TRACKED_ADDRESSES {
            self.attempts.pop_front();
        }
        self.attempts.push_back((from, bucket));
        is_allowed
    }

    /// Returns the operator with this cookie, unless the login has expired.
    pub(super) fn authenticate(&mut self, id: &str, initiator: Initiator, now: Time) -> Option<Operator> {
        self.remove_expired(now);
        let login = self.logins.iter_mut().find(|login| login.id.matches(id))?;
        let flash = match initiator {
            Initiator::Script => None,
            Initiator::User => {
                login.last_used = now;
                login.flash.take()
            }
        };
        Some(Operator { by: login.by.clone(), csrf: login.csrf.clone(), flash })
    }

    /// Sets the message that the operator's next page shows.
    pub(super) fn set_flash(&mut self, id: &str, message: FlashMessage) {
        if let Some(login) = self.logins.iter_mut().find(|login| login.id.matches(id)) {
            login.flash = Some(message);
        }
    }

    pub(super) fn log_out(&mut self, id: &str) {
        self.logins.retain(|login| !login.id.matches(id));
    }

    fn remove_expired(&mut self, now: Time) {
        let (idle, lifetime) = (self.idle, self.lifetime);
        self.logins.retain(|login| now.since(login.last_used) < idle && now.since(login.created) < lifetime);
    }
}

/// Returns the address by which attempts are counted.
///
/// For IPv6 it is the /64 network, because one machine may own all of it.
fn rate_limit_key(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// Attempts of one address: a person may mistype some, a program is slowed down.
const ATTEMPT_RATE: Rate = Rate::every(Duration::from_secs(10), 5);
/// Number of remembered addresses. An attacker with more addresses gets more attempts, but the token is too
/// long to guess.
const MAX_TRACKED_ADDRESSES: usize = 1024;
/// Largest number of logins. A new login replaces the one that was not used for the longest time.
const MAX_LOGINS: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn test_address(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// Returns an empty list of logins and its token.
    fn new_logins() -> (Logins, String) {
        let path = std::env::temp_dir().join(format!(
            "bcnet-logins-{}-{}",
            std::process::id(),
            crate::random::random_u64()
        ));
        let (token, _) = Token::load(&path).expect("new token");
        drop(std::fs::remove_file(path));
        let text = token.reveal().to_owned();
        (Logins::new(token, Duration::from_secs(600), Duration::from_secs(3600)), text)
    }

    fn log_in(logins: &mut Logins, token: &str, now: Time) -> String {
        let id = logins
            .log_in(token, "Ann", test_address(1), now)
            .expect("random numbers")
            .expect("the right token");
        id.reveal().to_owned()
    }

    #[test]
    fn login_expires_when_idle_and_after_its_lifetime() {
        let (mut logins, token) = new_logins();
        let id = log_in(&mut logins, &token, at(0));
        assert!(logins.authenticate("", Initiator::User, at(1)).is_none());
        assert!(logins.authenticate(&id, Initiator::User, at(599)).is_some());
        // Requests of the script do not keep a login alive.
        assert!(logins.authenticate(&id, Initiator::Script, at(1198)).is_some());
        assert!(logins.authenticate(&id, Initiator::User, at(1199)).is_none(), "idle for 600 s");
        let id = log_in(&mut logins, &token, at(2000));
        for second in (2000..5600).step_by(100) {
            assert!(logins.authenticate(&id, Initiator::User, at(second)).is_some(), "{second}");
        }
        assert!(logins.authenticate(&id, Initiator::User, at(5600)).is_none(), "an hour after the login");
    }

    #[test]
    fn logout_ends_only_one_login_and_flash_is_shown_once() {
        let (mut logins, token) = new_logins();
        let [one, two] = [(); 2].map(|()| log_in(&mut logins, &token, at(0)));
        assert_ne!(one, two);
        logins.log_out(&one);
        assert!(logins.authenticate(&one, Initiator::User, at(1)).is_none());
        let operator = logins.authenticate(&two, Initiator::User, at(1)).expect("logged in");
        assert_eq!(operator.by, "Ann");
        logins.set_flash(&two, FlashMessage { text: "done".into(), is_refusal: false });
        assert_eq!(
            logins.authenticate(&two, Initiator::Script, at(1)).expect("in").flash,
            None,
            "the script does not consume the message"
        );
        assert!(logins.authenticate(&two, Initiator::User, at(1)).expect("in").flash.is_some());
        assert_eq!(logins.authenticate(&two, Initiator::User, at(1)).expect("in").flash, None, "shown once");
    }

    #[test]
    fn login_attempts_are_limited_per_address() {
        let (mut logins, token) = new_logins();
        let mut guess = |text: &str, last_byte: u8, now| {
            logins.log_in(text, "", test_address(last_byte), now).expect("random numbers").map(drop)
        };
        for _ in 0..5 {
            assert_eq!(guess("wrong", 1, at(0)), Err(LoginError::WrongToken));
        }
        assert_eq!(guess(&token, 1, at(0)), Err(LoginError::TooManyAttempts));
        assert_eq!(guess(&token, 2, at(0)), Ok(()), "other addresses are not limited");
        assert_eq!(guess("wrong", 1, at(10)), Err(LoginError::WrongToken));
        assert_eq!(guess(&token, 1, at(10)), Err(LoginError::TooManyAttempts));
        assert_eq!(guess(&token, 1, at(20)), Ok(()));
    }

    #[test]
    fn login_attempts_are_limited_per_ipv6_network() {
        let (mut logins, token) = new_logins();
        let mut guess = |text: &str, from: &str| {
            let from = from.parse().expect("valid address");
            logins.log_in(text, "", from, at(0)).expect("random numbers").map(drop)
        };
        for n in 1..=5 {
            assert_eq!(guess("wrong", &format!("2001:db8::{n}")), Err(LoginError::WrongToken));
        }
        assert_eq!(guess(&token, "2001:db8::ffff:1"), Err(LoginError::TooManyAttempts));
        assert_eq!(guess(&token, "2001:db8:0:1::1"), Ok(()), "another network");
        assert_eq!(guess("wrong", "::ffff:192.0.2.1"), Err(LoginError::WrongToken), "an IPv4-mapped address");
    }

    #[test]
    fn logins_and_attempts_are_bounded() {
        let (mut logins, token) = new_logins();
        let first = log_in(&mut logins, &token, at(0));
        for second in 1..200 {
            log_in(&mut logins, &token, at(second));
        }
        assert_eq!(logins.logins.len(), MAX_LOGINS);
        assert!(
            logins.authenticate(&first, Initiator::User, at(200)).is_none(),
            "the oldest login was removed"
        );
        for n in 0..5_000_u32 {
            let from = Ipv4Addr::from_bits(n).into();
            drop(logins.log_in("wrong", "", from, at(200)).expect("random numbers"));
        }
        assert_eq!(logins.attempts.len(), MAX_TRACKED_ADDRESSES);
    }
}
