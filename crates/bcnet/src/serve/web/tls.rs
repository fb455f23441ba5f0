//! Certificates for https.

use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, ensure};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

use crate::config;
use crate::file::read_text;

/// Returns what does https, if there is a certificate. An error says which file and what is wrong with it.
pub(super) fn acceptor(web: &config::Web) -> anyhow::Result<Option<TlsAcceptor>> {
    let (Some(certificate), Some(key)) = (&web.certificate, &web.key) else { return Ok(None) };
    let chain = read_certificates(certificate)
        .with_context(|| format!("web.certificate: {}", certificate.display()))?;
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
    Ok(Some(TlsAcceptor::from(Arc::new(config))))
}

fn read_certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read_text(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    let chain = chain.map_err(|error| anyhow::anyhow!("no certificate in PEM: {error}"))?;
    ensure!(!chain.is_empty(), "there is no certificate in PEM in it");
    Ok(chain)
}
