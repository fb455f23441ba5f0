//! Checks single values of a scenario file: names, times, probabilities and bytes.
//!
//! Each error has the line of the wrong value.

use std::ops::Range;
use std::time::Duration;

use bcnet_transport::Time;
use bcnet_transport::wire::PeerId;
use toml::Spanned;

use super::file::{self, ScenarioFile};
use super::{EngineKind, PeerRef, ScenarioError};

pub(super) type CheckResult<T> = Result<T, ScenarioError>;

/// Checks values of a scenario file. It has the text, the names and the times that all checks need.
pub(super) struct ScenarioChecker<'a> {
    pub(super) text: &'a str,
    pub(super) names: Vec<String>,
    /// Name of the proxy. Its number is the one after the last node.
    proxy: Option<String>,
    pub(super) settle: Duration,
    pub(super) duration: Duration,
}

impl<'a> ScenarioChecker<'a> {
    pub(super) fn new(text: &'a str, file: &ScenarioFile) -> CheckResult<Self> {
        let names = file.node.iter().map(|node| node.get_ref().name.get_ref().clone()).collect();
        let proxy = file.proxy.first().map(|proxy| proxy.get_ref().name.get_ref().clone());
        let mut checker = Self { text, names, proxy, settle: Duration::ZERO, duration: MAX_DURATION };
        checker.settle = checker.duration_or(file.settle.as_ref(), Duration::ZERO)?;
        checker.duration = checker.duration_of(&file.duration)?;
        if file.node.is_empty() || file.node.len() > MAX_NODES {
            return Err(ScenarioError {
                line: 1,
                message: format!("a scenario must have 1 to {MAX_NODES} [[node]] tables"),
            });
        }
        Ok(checker)
    }

    pub(super) fn engine(&self, name: &Spanned<String>) -> CheckResult<EngineKind> {
        self.choice("engine", name, &[("stock", EngineKind::Stock), ("bcnet", EngineKind::Bcnet)])
    }

    pub(super) fn node_number(&self, name: &Spanned<String>) -> CheckResult<usize> {
        let number = self.names.iter().position(|known| known == name.get_ref());
        let known = self.names.iter().map(String::as_str);
        number.ok_or_else(|| self.error(name, unknown_name("node", name.get_ref(), known)))
    }

    /// Returns the number of the node or proxy with this name.
    pub(super) fn link_end_number(&self, name: &Spanned<String>) -> CheckResult<usize> {
        if self.proxy.as_ref() == Some(name.get_ref()) {
            return Ok(self.names.len());
        }
        self.node_number(name)
    }

    pub(super) fn peer_ref(&self, peer: &Spanned<file::PeerRefValue>) -> CheckResult<PeerRef> {
        let known = self.names.iter().map(String::as_str);
        match peer.get_ref() {
            file::PeerRefValue::Id(id) => Ok(PeerRef::Id(PeerId(*id))),
            file::PeerRefValue::Name(name) => match self.names.iter().position(|known| known == name) {
                Some(number) => Ok(PeerRef::Node(number)),
                None => Err(self.error(peer, unknown_name("node", name, known))),
            },
        }
    }

    /// Returns the value of the choice with this name.
    pub(super) fn choice<T: Copy>(
        &self,
        what: &str,
        name: &Spanned<String>,
        choices: &[(&str, T)],
    ) -> CheckResult<T> {
        let found = choices.iter().find(|(choice, _)| choice == name.get_ref());
        let known = choices.iter().map(|(choice, _)| *choice);
        let found = found.map(|(_, value)| *value);
        found.ok_or_else(|| self.error(name, unknown_name(what, name.get_ref(), known)))
    }

    pub(super) fn optional_choice<T: Copy>(
        &self,
        what: &str,
        name: Option<&Spanned<String>>,
        choices: &[(&str, T)],
    ) -> CheckResult<Option<T>> {
        name.map(|name| self.choice(what, name, choices)).transpose()
    }

    /// Returns the first time of an action, and the interval and end of its repetition.
    ///
    /// Only an action with a `rate` is repeated. A repetition without `until` ends with the scenario.
    pub(super) fn schedule(
        &self,
        at: &Spanned<f64>,
        until: Option<&Spanned<f64>>,
        rate: Option<&Spanned<f64>>,
    ) -> CheckResult<(Time, Option<(Duration, Time)>)> {
        let end = Time::ZERO + self.duration;
        let until_time = until.map_or(Ok(end), |until| self.time(until))?;
        let every = match (rate, until) {
            (None, None) => None,
            (None, Some(until)) => {
                return Err(self.error(until, "`until` needs a `rate`: add `rate` or remove `until`"));
            }
            (Some(rate), _) => Some((self.period(rate)?, until_time)),
        };
        Ok((self.time(at)?, every))
    }

    /// Returns the interval of `rate` events per second.
    pub(super) fn period(&self, rate: &Spanned<f64>) -> CheckResult<Duration> {
        let rate = self.number_in(rate, 0.000_01..10_000.0)?;
        Ok(Duration::from_secs_f64(1.0 / rate))
    }

    /// Converts seconds since the start of the experiment to a time. It must not be after the end.
    pub(super) fn time(&self, seconds: &Spanned<f64>) -> CheckResult<Time> {
        let value = *seconds.get_ref();
        let end = self.duration.as_secs_f64();
        if !(0.0..=end).contains(&value) {
            let what = format!("{value} is outside the scenario, which lasts from 0 to {end} seconds");
            return Err(self.error(seconds, what));
        }
        // Rounds to whole microseconds: 0.026 is 26,000 microseconds.
        Ok(Time::from_micros((value * 1e6).round() as u64))
    }

    pub(super) fn duration_of(&self, seconds: &Spanned<f64>) -> CheckResult<Duration> {
        let value = *seconds.get_ref();
        if !(0.0..=MAX_DURATION.as_secs_f64()).contains(&value) {
            let what = format!(
                "{value} is out of range: a duration must be 0 to {} seconds",
                MAX_DURATION.as_secs()
            );
            return Err(self.error(seconds, what));
        }
        Ok(Duration::from_nanos((value * 1e9).round() as u64))
    }

    pub(super) fn duration_or(
        &self,
        seconds: Option<&Spanned<f64>>,
        default: Duration,
    ) -> CheckResult<Duration> {
        seconds.map_or(Ok(default), |seconds| self.duration_of(seconds))
    }

    pub(super) fn optional_duration(&self, seconds: Option<&Spanned<f64>>) -> CheckResult<Option<Duration>> {
        seconds.map(|seconds| self.duration_of(seconds)).transpose()
    }

    /// Returns a probability from 0 to less than 1; 0 if the key is absent.
    pub(super) fn probability(&self, share: Option<&Spanned<f64>>) -> CheckResult<f64> {
        share.map_or(Ok(0.0), |share| self.number_in(share, 0.0..1.0))
    }

    pub(super) fn number_in(&self, number: &Spanned<f64>, range: Range<f64>) -> CheckResult<f64> {
        let value = *number.get_ref();
        if range.contains(&value) {
            return Ok(value);
        }
        let what = format!(
            "{value} is out of range: the value must be at least {} and less than {}",
            range.start, range.end
        );
        Err(self.error(number, what))
    }

    /// Returns the bytes of a payload in hex. Whitespace between digits is ignored.
    pub(super) fn hex(&self, text: &Spanned<String>) -> CheckResult<Vec<u8>> {
        let digits: Vec<u8> = text.get_ref().bytes().filter(|byte| !byte.is_ascii_whitespace()).collect();
        let (pairs, rest) = digits.as_chunks::<2>();
        let byte = |pair: &[u8; 2]| {
            let pair =
                str::from_utf8(pair).ok().filter(|pair| pair.bytes().all(|b| b.is_ascii_hexdigit()))?;
            u8::from_str_radix(pair, 16).ok()
        };
        let bytes: Option<Vec<u8>> = pairs.iter().map(byte).collect();
        match bytes.filter(|_| rest.is_empty()) {
            Some(bytes) if bytes.len() <= MAX_PAYLOAD => Ok(bytes),
            Some(_) => Err(self.error(text, format!("the payload is longer than {MAX_PAYLOAD} bytes"))),
            None => {
                Err(self
                    .error(text, "this text is not hex; write two hex digits per byte, such as \"2A 20\""))
            }
        }
    }

    pub(super) fn error<T>(&self, place: &Spanned<T>, what: impl Into<String>) -> ScenarioError {
        ScenarioError { line: line_number(self.text, &place.span()), message: what.into() }
    }
}

/// Converts an error of the TOML parser. For an unknown key, the error names the nearest valid key.
pub(super) fn parse_error(text: &str, error: &toml::de::Error) -> ScenarioError {
    let line = error.span().map_or(1, |span| line_number(text, &span));
    let message = error.message();
    let mut quoted = message.split('`').skip(1).step_by(2);
    let what = match (message.starts_with("unknown field"), quoted.next()) {
        (true, Some(unknown)) => unknown_name("key", unknown, quoted),
        _ => message.replace('\n', "; "),
    };
    ScenarioError { line, message: what }
}

pub(super) fn line_number(text: &str, span: &Range<usize>) -> usize {
    text.bytes().take(span.start).filter(|byte| *byte == b'\n').count() + 1
}

/// Returns an error text for an unknown name. It suggests the most similar known name, or lists all.
pub(super) fn unknown_name<'a>(what: &str, unknown: &str, known: impl Iterator<Item = &'a str>) -> String {
    let known: Vec<&str> = known.collect();
    match known.iter().min_by_key(|name| edit_distance(unknown, name)) {
        Some(near) if edit_distance(unknown, near) <= 1 + near.len() / 3 => {
            format!("unknown {what} `{unknown}`; did you mean `{near}`?")
        }
        _ => format!("unknown {what} `{unknown}`; known: {}", known.join(", ")),
    }
}

/// Returns the edit distance of two words: characters changed, added, removed or swapped.
fn edit_distance(a: &str, b: &str) -> usize {
    let [a, b] = [a, b].map(|word| word.chars().take(MAX_NAME).collect::<String>());
    strsim::osa_distance(&a, &b)
}

/// Longest duration in a scenario file: thirty days.
const MAX_DURATION: Duration = Duration::from_secs(30 * 86_400);
/// Most nodes in a scenario: a host, and one client for each id that the host can assign (T-50).
const MAX_NODES: usize = 125;
/// Longest payload in bytes.
///
/// It is more than an engine can split into fragments, so that a scenario can show the refusal.
pub(super) const MAX_PAYLOAD: usize = 200_000;
/// Most characters of a name that are compared. The time grows with the product of both lengths.
const MAX_NAME: usize = 64;
