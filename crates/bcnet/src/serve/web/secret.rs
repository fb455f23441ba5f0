//! Secrets of the operator page: the login token, cookies and CSRF values.

use std::fmt;
use std::io::{self, ErrorKind};
use std::path::Path;

use anyhow::{Context, ensure};
use subtle::ConstantTimeEq;

use crate::{file, random};

/// The token that operators type to log in. Debug output hides it.
pub(super) struct Token(String);

impl Token {
    /// Reads the token from a file, or creates one there. Returns whether the token is new.
    pub(super) fn load(path: &Path) -> anyhow::Result<(Self, bool)> {
        let place = || format!("web.token_file: {}", path.display());
        match file::read_text(path) {
            Ok(text) => {
                let token = text.trim();
                let is_valid = token.len() >= MIN_TOKEN_LEN && token.chars().all(|c| c.is_ascii_graphic());
                ensure!(
                    is_valid,
                    "{}: the token must have {MIN_TOKEN_LEN} or more visible ASCII characters; delete the file, and the \
                     server creates a new token",
                    place()
                );
                ensure!(
                    !file::is_world_accessible(path).with_context(place)?,
                    "{}: every user of this machine can read the token; run `chmod 600` on the file, and replace the token",
                    place()
                );
                Ok((Self(token.into()), false))
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                let token = Self::new()?;
                file::create_private(path, format!("{}\n", token.0).as_bytes()).with_context(place)?;
                Ok((token, true))
            }
            Err(error) => Err(anyhow::Error::new(error).context("web.token_file")),
        }
    }

    /// Creates a token of 125 random bits, in groups that are easy to read out and to type on a phone.
    fn new() -> io::Result<Self> {
        let mut bytes = [0; 25];
        random::fill(&mut bytes)?;
        let letters: Vec<char> =
            bytes.iter().map(|byte| char::from(TOKEN_ALPHABET[usize::from(byte % 32)])).collect();
        let groups: Vec<String> = letters.chunks(5).map(|group| group.iter().collect()).collect();
        Ok(Self(groups.join("-")))
    }

    /// Returns the token as text.
    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for a guess of the right length.
    pub(super) fn matches(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.trim().as_bytes()).into()
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// 256 random bits in hexadecimal.
#[derive(Clone)]
pub(super) struct Secret(String);

impl Secret {
    pub(super) fn new() -> io::Result<Self> {
        let mut bytes = [0; 32];
        random::fill(&mut bytes)?;
        Ok(Self(bytes.iter().map(|byte| format!("{byte:02x}")).collect()))
    }

    pub(super) fn reveal(&self) -> &str {
        &self.0
    }

    /// Compares in constant time for a guess of the right length.
    pub(super) fn matches(&self, guess: &str) -> bool {
        self.0.as_bytes().ct_eq(guess.as_bytes()).into()
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

/// Letters and digits without those that look alike.
const TOKEN_ALPHABET: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
/// Shortest token that an operator may choose.
const MIN_TOKEN_LEN: usize = 20;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::PathBuf;

    use super::*;

    fn token_path(test: &str) -> PathBuf {
        let directory = std::env::temp_dir().join(format!("bcnet-token-{}-{test}", std::process::id()));
        drop(fs::remove_dir_all(&directory));
        fs::create_dir_all(&directory).expect("create directory");
        directory.join("web-token")
    }

    #[test]
    fn token_is_created_once_and_readable_only_by_its_user() {
        let path = token_path("made");
        let (token, is_new) = Token::load(&path).expect("created");
        assert!(is_new && token.reveal().len() == 29 && !format!("{token:?}").contains(token.reveal()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(fs::metadata(&path).expect("metadata").permissions().mode() & 0o777, 0o600);
        }
        let (again, is_new) = Token::load(&path).expect("read");
        assert!(!is_new && again.matches(token.reveal()));
        assert!(!Token::new().expect("random").matches(token.reveal()));
        drop(fs::remove_dir_all(path.with_file_name("")));
    }

    #[test]
    fn token_matches_only_as_a_whole() {
        let token = Token("abcde-fghij-kmnpq-rstuv".into());
        assert!(token.matches("abcde-fghij-kmnpq-rstuv") && token.matches(" abcde-fghij-kmnpq-rstuv\n"));
        for wrong in ["", "abcde-fghij-kmnpq-rstu", "abcde-fghij-kmnpq-rstuvw", "Abcde-fghij-kmnpq-rstuv"] {
            assert!(!token.matches(wrong), "{wrong}");
        }
    }

    #[test]
    fn short_or_world_readable_token_is_an_error() {
        let path = token_path("bad");
        fs::write(&path, "short\n").expect("written");
        let error = format!("{:#}", Token::load(&path).expect_err("short"));
        assert!(error.starts_with("web.token_file: ") && error.contains("delete the file"), "{error}");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::write(&path, "x".repeat(30)).expect("written");
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).expect("set");
            let error = format!("{:#}", Token::load(&path).expect_err("world readable"));
            assert!(error.contains("chmod 600"), "{error}");
        }
        drop(fs::remove_dir_all(path.with_file_name("")));
    }
}
