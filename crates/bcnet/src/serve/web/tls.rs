//! Certificates for https, reloaded without a restart when their file changes.
//!
//! Certificates are renewed every few weeks, and no player should have to leave for that.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use anyhow::{Context, ensure};
use bcnet_transport::Time;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config;
use crate::file::{is_reachable_by_all_users, read_text};

/// A certificate with its key, and the time of the last check of its file.
pub(super) struct Certificate {
    certificate_path: PathBuf,
    key_path: PathBuf,
    modified: Option<SystemTime>,
    last_checked: Time,
    current: Arc<ServerConfig>,
}

impl Certificate {
    /// Loads the certificate, if the settings name one. Errors name the file.
    pub(super) fn load(web: &config::Web) -> anyhow::Result<Option<Self>> {
        let (Some(certificate), Some(key)) = (web.certificate.clone(), web.key.clone()) else {
            return Ok(None);
        };
        let current = load_config(&certificate, &key)?;
        let changed = modified_time(&certificate);
        Ok(Some(Self {
            certificate_path: certificate,
            key_path: key,
            modified: changed,
            last_checked: Time::ZERO,
            current,
        }))
    }

    /// Returns an acceptor with the current certificate. The file is checked once a minute.
    pub(super) fn acceptor(&mut self, now: Time) -> TlsAcceptor {
        if now.since(self.last_checked) >= CHECK_INTERVAL {
            self.last_checked = now;
            let changed = modified_time(&self.certificate_path);
            if changed.is_some() && changed != self.modified {
                self.reload(changed);
            }
        }
        TlsAcceptor::from(Arc::clone(&self.current))
    }

    fn reload(&mut self, changed: Option<SystemTime>) {
        match load_config(&self.certificate_path, &self.key_path) {
            Ok(current) => {
                (self.current, self.modified) = (current, changed);
                tracing::info!(event = "web_certificate", "loaded a new certificate for the operator page");
            }
            // The file may be half-written. The old certificate stays in use, and the next check tries again.
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(
                    event = "web_certificate",
                    error,
                    "cannot load the new certificate; the operator page keeps the old one"
                );
            }
        }
    }
}

fn modified_time(path: &Path) -> Option<SystemTime> {
    fs::metadata(path).and_then(|about| about.modified()).ok()
}

fn load_config(certificate: &Path, key: &Path) -> anyhow::Result<Arc<ServerConfig>> {
    let chain =
        read_chain(certificate).with_context(|| format!("web.certificate: {}", certificate.display()))?;
    let place = || format!("web.key: {}", key.display());
    let text = read_text(key).context("web.key")?;
    let secret = PrivateKeyDer::from_pem_slice(text.as_bytes());
    let secret = secret
        .map_err(|error| anyhow::anyhow!("the file has no private key in PEM format: {error}"))
        .with_context(place)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| format!("{}, for {}", place(), certificate.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    // Not an error: orchestrators mount secrets with such rights.
    if is_reachable_by_all_users(key).unwrap_or(false) {
        let file = key.display();
        tracing::warn!(
            event = "web_key_readable",
            %file,
            "every user of this machine can read the key of the page's certificate; run `chmod 640 {file}`"
        );
    }
    Ok(Arc::new(config))
}

fn read_chain(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read_text(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain =
        chain.map_err(|error| anyhow::anyhow!("the file has no certificate in PEM format: {error}"))?;
    ensure!(!chain.is_empty(), "the file has no certificate in PEM format");
    Ok(chain)
}

const CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_reloads_within_a_minute_if_valid() {
        let directory = std::env::temp_dir().join(format!("bcnet-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("create directory");
        let [certificate, key] = ["certificate", "key"].map(|name| {
            let from = format!("{}/tests/tls/{name}.pem", env!("CARGO_MANIFEST_DIR"));
            let path = directory.join(name);
            fs::copy(from, &path).expect("copied");
            path
        });
        let web =
            config::Web { certificate: Some(certificate.clone()), key: Some(key), ..config::Web::default() };
        let mut loaded = Certificate::load(&web).expect("valid").expect("configured");
        let first = Arc::clone(&loaded.current);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let touch = |hours: u64, text: Option<&str>| {
            if let Some(text) = text {
                fs::write(&certificate, text).expect("written");
            }
            let file = fs::File::options().write(true).open(&certificate).expect("open");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600)).expect("set");
        };
        let good = fs::read_to_string(&certificate).expect("read");
        touch(1, None);
        loaded.acceptor(at(59));
        assert!(Arc::ptr_eq(&loaded.current, &first), "the last check is less than a minute ago");
        loaded.acceptor(at(60));
        assert!(!Arc::ptr_eq(&loaded.current, &first));
        let second = Arc::clone(&loaded.current);
        touch(2, Some("half of it"));
        loaded.acceptor(at(120));
        assert!(Arc::ptr_eq(&loaded.current, &second), "the old certificate is kept");
        touch(3, Some(&good));
        loaded.acceptor(at(180));
        assert!(!Arc::ptr_eq(&loaded.current, &second));
        drop(fs::remove_dir_all(directory));
    }
}
