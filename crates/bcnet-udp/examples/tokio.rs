//! A host in a task of tokio. It prints every payload that it receives. For Unix; the example `mio` runs everywhere.
//!
//! `cargo run -p bcnet-udp --example tokio -- 127.0.0.1:22101`

#[cfg(unix)]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let address = std::env::args().nth(1).ok_or("usage: tokio ADDRESS:PORT")?.parse()?;
    let driver = bcnet_udp::Driver::bind(address)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(unix::host(driver))?)
}

#[cfg(not(unix))]
fn main() {
    eprintln!("this example needs Unix; the example mio runs everywhere");
}

#[cfg(unix)]
mod unix {
    use std::io::{self, ErrorKind};
    use std::os::fd::AsFd;
    use std::time::Duration;

    use bcnet_transport::{Config, Endpoint, Engine, Event};
    use bcnet_udp::Driver;
    use tokio::io::Interest;
    use tokio::net::UdpSocket;
    use tokio::time;

    pub(crate) async fn host(mut driver: Driver) -> io::Result<()> {
        // A second descriptor of the same socket: tokio waits with it, and the driver reads.
        let readiness = UdpSocket::from_std(driver.as_fd().try_clone_to_owned()?.into())?;
        let (mut endpoint, mut payload) = (Endpoint::host(Config::default()), Vec::new());
        loop {
            let timeout = driver.timeout(&endpoint).unwrap_or(Duration::MAX);
            if time::timeout(timeout, readiness.readable()).await.is_ok() {
                // `receive` empties the socket, so tokio must wait for the next datagram.
                let _ = readiness
                    .try_io(Interest::READABLE, || io::Result::<()>::Err(ErrorKind::WouldBlock.into()));
            }
            let now = driver.receive(&mut endpoint)?;
            while let Some(event) = endpoint.poll_event(&mut payload) {
                match event {
                    Event::Request { from, .. } => drop(endpoint.challenge(from, now)),
                    Event::Received { peer, .. } => println!("{peer}: {}", payload.escape_ascii()),
                    _ => {}
                }
            }
            driver.send(&mut endpoint);
        }
    }
}
