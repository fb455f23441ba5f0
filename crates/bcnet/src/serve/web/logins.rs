//! Who has shown the token: browsers that are logged in, and attempts.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, Ipv6Addr};
use std::time::Duration;

use bcnet_session::{Bucket, Rate};
use bcnet_transport::Time;

use super::secret::{Secret, Token};

/// The browsers that are logged in.
#[derive(Debug)]
pub(super) struct Logins {
    token: Token,
    idle: Duration,
    lifetime: Duration,
    logins: Vec<Login>,
    /// How often those may try who have done so lately, the latest at the back.
    attempts: VecDeque<(IpAddr, Bucket)>,
}

/// One browser.
#[derive(Debug)]
struct Login {
    id: Secret,
    csrf: Secret,
    by: String,
    began: Time,
    used: Time,
    note: Option<Note>,
}

/// What came of what an operator did, to be shown once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) text: String,
    pub(super) is_refusal: bool,
}

/// Whoever has shown the token.
#[derive(Debug)]
pub(super) struct Operator {
    /// Who it says it is.
    pub(super) by: String,
    /// What its forms must bring along.
    pub(super) csrf: Secret,
    pub(super) note: Option<Note>,
}

/// Why somebody is not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Denied {
    Wrong,
    /// There were too many attempts.
    TooMany,
}

/// What a browser does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Visit {
    /// Somebody asks for something.
    Person,
    /// The page asks for news by itself; nobody may be there.
    Script,
}

impl Logins {
    pub(super) const fn new(token: Token, idle: Duration, lifetime: Duration) -> Self {
        Self { token, idle, lifetime, logins: Vec::new(), attempts: VecDeque::new() }
    }

    /// Lets a browser in that shows the token. Returns what it shows from now on.
    pub(super) fn log_in(
        &mut self,
        guess: &str,
        by: &str,
        from: IpAddr,
        now: Time,
    ) -> io::Result<Result<Secret, Denied>> {
        if !self.may_try(from, now) {
            return Ok(Err(Denied::TooMany));
        }
        if !self.token.is(guess) {
            return Ok(Err(Denied::Wrong));
        }
        self.attempts.retain(|(other, _)| *other != counted(from));
        self.expire(now);
        if self.logins.len() == MAX_LOGINS
            && let Some(oldest) =
                (0..self.logins.len()).min_by_key(|at| self.logins.get(*at).map(|one| one.used))
        {
            self.logins.remove(oldest);
        }
        let (id, csrf) = (Secret::new()?, Secret::new()?);
        self.logins.push(Login { id: id.clone(), csrf, by: by.into(), began: now, used: now, note: None });
        Ok(Ok(id))
    }

    fn may_try(&mut self, from: IpAddr, now: Time) -> bool {
        let from = counted(from);
        let known = self.attempts.iter().position(|(other, _)| *other == from);
        let known = known.and_then(|at| self.attempts.remove(at));
        let mut bucket = known.map_or_else(|| Bucket::new(ATTEMPTS, now), |(_, bucket)| bucket);
        let may = bucket.take(1, ATTEMPTS, now);
        if self.attempts.len() == MAX_ATTEMPTS {
            self.attempts.pop_front();
        }
        self.attempts.push_back((from, bucket));
        may
    }

    /// Returns whose browser shows this, unless it has to show the token again.
    pub(super) fn operator(&mut self, id: &str, visit: Visit, now: Time) -> Option<Operator> {
        self.expire(now);
        let login = self.logins.iter_mut().find(|login| login.id.is(id))?;
        let note = match visit {
            Visit::Script => None,
            Visit::Person => {
                login.used = now;
                login.note.take()
            }
        };
        Some(Operator { by: login.by.clone(), csrf: login.csrf.clone(), note })
    }

    /// Has something shown to an operator when it looks next.
    pub(super) fn note(&mut self, id: &str, note: Note) {
        if let Some(login) = self.logins.iter_mut().find(|login| login.id.is(id)) {
            login.note = Some(note);
        }
    }

    pub(super) fn log_out(&mut self, id: &str) {
        self.logins.retain(|login| !login.id.is(id));
    }

    fn expire(&mut self, now: Time) {
        let (idle, lifetime) = (self.idle, self.lifetime);
        self.logins.retain(|login| now.since(login.used) < idle && now.since(login.began) < lifetime);
    }
}

/// Returns by whom attempts are counted: one machine has a whole network of IPv6 addresses.
fn counted(from: IpAddr) -> IpAddr {
    match from.to_canonical() {
        IpAddr::V6(address) => Ipv6Addr::from_bits(address.to_bits() >> 64 << 64).into(),
        address @ IpAddr::V4(_) => address,
    }
}

/// How often one address may try: a person mistypes, a program does not wait.
const ATTEMPTS: Rate = Rate::every(Duration::from_secs(10), 5);
/// How many addresses are remembered. Whoever has more could try more often, which is hopeless all the same.
const MAX_ATTEMPTS: usize = 1024;
/// More browsers than operators have. The one that was used least lately gives way.
const MAX_LOGINS: usize = 64;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn at(seconds: u64) -> Time {
        Time::ZERO + Duration::from_secs(seconds)
    }

    fn from(last: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, last).into()
    }

    /// With a token that is always the same.
    fn logins() -> (Logins, String) {
        let path = std::env::temp_dir().join(format!(
            "bcnet-logins-{}-{}",
            std::process::id(),
            crate::random::unguessable()
        ));
        let (token, _) = Token::load(&path).expect("a token");
        drop(std::fs::remove_file(path));
        let text = token.reveal().to_owned();
        (Logins::new(token, Duration::from_secs(600), Duration::from_secs(3600)), text)
    }

    fn enter(logins: &mut Logins, token: &str, now: Time) -> String {
        let id = logins.log_in(token, "Ann", from(1), now).expect("random numbers").expect("the right token");
        id.reveal().to_owned()
    }

    #[test]
    fn a_browser_is_forgotten_when_nobody_uses_it_and_after_its_lifetime() {
        let (mut logins, token) = logins();
        let id = enter(&mut logins, &token, at(0));
        assert!(logins.operator("", Visit::Person, at(1)).is_none());
        assert!(logins.operator(&id, Visit::Person, at(599)).is_some());
        // What the page asks by itself keeps nobody logged in.
        assert!(logins.operator(&id, Visit::Script, at(1198)).is_some());
        assert!(logins.operator(&id, Visit::Person, at(1199)).is_none(), "600 s after it was used");
        let id = enter(&mut logins, &token, at(2000));
        for second in (2000..5600).step_by(100) {
            assert!(logins.operator(&id, Visit::Person, at(second)).is_some(), "{second}");
        }
        assert!(logins.operator(&id, Visit::Person, at(5600)).is_none(), "an hour after it began");
    }

    #[test]
    fn whoever_logs_out_is_out_and_others_are_not() {
        let (mut logins, token) = logins();
        let [one, two] = [(); 2].map(|()| enter(&mut logins, &token, at(0)));
        assert_ne!(one, two);
        logins.log_out(&one);
        assert!(logins.operator(&one, Visit::Person, at(1)).is_none());
        let operator = logins.operator(&two, Visit::Person, at(1)).expect("logged in");
        assert_eq!(operator.by, "Ann");
        logins.note(&two, Note { text: "done".into(), is_refusal: false });
        assert_eq!(
            logins.operator(&two, Visit::Script, at(1)).expect("in").note,
            None,
            "kept for the person"
        );
        assert!(logins.operator(&two, Visit::Person, at(1)).expect("in").note.is_some());
        assert_eq!(logins.operator(&two, Visit::Person, at(1)).expect("in").note, None, "shown once");
    }

    #[test]
    fn attempts_are_limited_for_each_address_even_with_the_right_token() {
        let (mut logins, token) = logins();
        let mut guess = |text: &str, who: u8, now| {
            logins.log_in(text, "", from(who), now).expect("random numbers").map(drop)
        };
        for _ in 0..5 {
            assert_eq!(guess("wrong", 1, at(0)), Err(Denied::Wrong));
        }
        assert_eq!(guess(&token, 1, at(0)), Err(Denied::TooMany));
        assert_eq!(guess(&token, 2, at(0)), Ok(()), "others are not kept out");
        assert_eq!(guess("wrong", 1, at(10)), Err(Denied::Wrong));
        assert_eq!(guess(&token, 1, at(10)), Err(Denied::TooMany));
        assert_eq!(guess(&token, 1, at(20)), Ok(()));
    }

    #[test]
    fn another_address_of_the_same_network_is_no_other_visitor_in_ipv6() {
        let (mut logins, token) = logins();
        let mut guess = |text: &str, from: &str| {
            let from = from.parse().expect("an address");
            logins.log_in(text, "", from, at(0)).expect("random numbers").map(drop)
        };
        for n in 1..=5 {
            assert_eq!(guess("wrong", &format!("2001:db8::{n}")), Err(Denied::Wrong));
        }
        assert_eq!(guess(&token, "2001:db8::ffff:1"), Err(Denied::TooMany));
        assert_eq!(guess(&token, "2001:db8:0:1::1"), Ok(()), "another network");
        assert_eq!(guess("wrong", "::ffff:192.0.2.1"), Err(Denied::Wrong), "four bytes in sixteen");
    }

    #[test]
    fn neither_logins_nor_attempts_grow_without_bound() {
        let (mut logins, token) = logins();
        let first = enter(&mut logins, &token, at(0));
        for second in 1..200 {
            enter(&mut logins, &token, at(second));
        }
        assert_eq!(logins.logins.len(), MAX_LOGINS);
        assert!(logins.operator(&first, Visit::Person, at(200)).is_none(), "the oldest gave way");
        for n in 0..5_000_u32 {
            let from = Ipv4Addr::from_bits(n).into();
            drop(logins.log_in("wrong", "", from, at(200)).expect("random numbers"));
        }
        assert_eq!(logins.attempts.len(), MAX_ATTEMPTS);
    }
}
