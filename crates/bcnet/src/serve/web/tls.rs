//! Certificates for https. They are renewed every few weeks, and no player has to leave for that.

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
use crate::file::read_text;

/// A certificate with its key, and when its file was looked at.
pub(super) struct Certificate {
    certificate_path: PathBuf,
    key_path: PathBuf,
    modified: Option<SystemTime>,
    last_checked: Time,
    current: Arc<ServerConfig>,
}

impl Certificate {
    /// Reads the certificate, if there is to be one. An error says which file and what is wrong with it.
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

    /// Returns what does https, with the certificate that is in the file now, or was a minute ago.
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
                tracing::info!(event = "web_certificate", "the page has a new certificate");
            }
            // Half of it may be written yet. The old one is good for a while, and this is tried again.
            Err(error) => {
                let error = format!("{error:#}");
                tracing::warn!(event = "web_certificate", error, "the page keeps its old certificate");
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
    let secret = secret.map_err(|error| anyhow::anyhow!("no key in PEM: {error}")).with_context(place)?;
    let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_single_cert(chain, secret)
        .with_context(|| format!("{}, for {}", place(), certificate.display()))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

fn read_chain(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read_text(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|error| anyhow::anyhow!("no certificate in PEM: {error}"))?;
    ensure!(!chain.is_empty(), "there is no certificate in PEM in it");
    Ok(chain)
}

const CHECK_INTERVAL: Duration = Duration::from_secs(60);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn certificate_reloads_within_a_minute_if_valid() {
        let directory = std::env::temp_dir().join(format!("bcnet-tls-{}", std::process::id()));
        fs::create_dir_all(&directory).expect("a directory");
        let [certificate, key] = ["certificate", "key"].map(|name| {
            let from = format!("{}/tests/tls/{name}.pem", env!("CARGO_MANIFEST_DIR"));
            let path = directory.join(name);
            fs::copy(from, &path).expect("copied");
            path
        });
        let web =
            config::Web { certificate: Some(certificate.clone()), key: Some(key), ..config::Web::default() };
        let mut loaded = Certificate::load(&web).expect("good").expect("there is one");
        let first = Arc::clone(&loaded.current);
        let at = |seconds| Time::ZERO + Duration::from_secs(seconds);
        let touch = |hours: u64, text: Option<&str>| {
            if let Some(text) = text {
                fs::write(&certificate, text).expect("written");
            }
            let file = fs::File::options().write(true).open(&certificate).expect("a file");
            file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(hours * 3600)).expect("set");
        };
        let good = fs::read_to_string(&certificate).expect("a file");
        touch(1, None);
        loaded.acceptor(at(59));
        assert!(Arc::ptr_eq(&loaded.current, &first), "it was looked at less than a minute ago");
        loaded.acceptor(at(60));
        assert!(!Arc::ptr_eq(&loaded.current, &first));
        let second = Arc::clone(&loaded.current);
        touch(2, Some("half of it"));
        loaded.acceptor(at(120));
        assert!(Arc::ptr_eq(&loaded.current, &second), "the old one is kept");
        touch(3, Some(&good));
        loaded.acceptor(at(180));
        assert!(!Arc::ptr_eq(&loaded.current, &second));
        drop(fs::remove_dir_all(directory));
    }
}
