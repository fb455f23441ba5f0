//! Sends the datagrams of a run to a program that only echoes them.
//!
//! The processor time of the echo program is the system's cost for datagrams of this number and these sizes. The
//! players send half as many datagrams as the server received and sent in the run. The echo doubles the number.

use std::net::SocketAddrV4;
use std::thread;
use std::time::Duration;

use bcnet_lab::Rng;
use bcnet_transport::Time;
use bcnet_udp::{Batch, DatagramInfo, ReceiveStatus, wall_now};

use super::DelayHistogram;
use super::counters::DatagramCounters;
use super::driver::SwarmDriver;

/// Result of the echo.
#[derive(Debug, Default)]
pub(super) struct EchoResult {
    pub(super) sent: u64,
    pub(super) received: u64,
    /// Round-trip times of datagrams.
    pub(super) delays: DelayHistogram,
}

/// Repeats the traffic of a run.
///
/// The players' sockets send the datagrams of `traffic` to `echo` and the ports after it, for `time`.
pub(super) fn run(
    driver: &SwarmDriver,
    sessions: u16,
    echo: SocketAddrV4,
    traffic: &DatagramCounters,
    time: Duration,
) -> EchoResult {
    let (mut rng, mut batch, mut result) = (Rng::new(1), Batch::new(), EchoResult::default());
    let sizes = SizeDistribution::new(traffic);
    let players = driver.endpoints.len().max(1);
    let per_frame =
        traffic.count as f64 / 2.0 / players as f64 / (time.as_secs_f64() / FRAME_INTERVAL.as_secs_f64());
    let start = driver.clock.now();
    let frames = (time.as_micros() / FRAME_INTERVAL.as_micros()) as u64;
    // Players have their ticks one after the other, so datagrams are as evenly spread as in the run.
    for step in 0..frames * players as u64 {
        let frame =
            Time::from_micros(start.as_micros() + step * FRAME_INTERVAL.as_micros() as u64 / players as u64);
        let early = frame.since(driver.clock.now());
        if early > MIN_SLEEP {
            thread::sleep(early);
        }
        let player = (step % players as u64) as usize;
        let Some(endpoint) = driver.endpoints.get(player) else { break };
        let port = echo.port() + (player * usize::from(sessions) / players) as u16;
        loop {
            batch.clear();
            let received = endpoint.socket.receive(&mut batch, 0, usize::MAX);
            // The socket may still hold datagrams of the run, which came from other ports.
            for (_, bytes, noted) in
                batch.iter_with_timestamps().filter(|(head, ..)| head.remote.port() == port)
            {
                result.received += 1;
                if let Some((left, arrived)) = bytes.first_chunk().zip(noted) {
                    let sent_at = Duration::from_nanos(u64::from_le_bytes(*left));
                    result.delays.add(arrived.saturating_sub(sent_at), 1);
                }
            }
            if !matches!(received, Ok(ReceiveStatus::More)) {
                break;
            }
        }
        batch.clear();
        let count = per_frame as usize + usize::from(rng.chance(per_frame.fract()));
        for _ in 0..count {
            let len = sizes.draw(&mut rng);
            let remote = SocketAddrV4::new(*echo.ip(), port);
            batch.push(|room| {
                // The first eight bytes carry the send time. Shorter datagrams arrive without it and are not measured.
                let sent_at = wall_now().as_nanos() as u64;
                room.first_chunk_mut().into_iter().for_each(|first| *first = sent_at.to_le_bytes());
                Some(DatagramInfo { owner: 0, remote, local: None, len, truncated: false })
            });
        }
        result.sent += batch.len() as u64;
        drop(endpoint.socket.send(&batch, 0..batch.len()));
    }
    result
}

/// The distribution of sizes of a run.
struct SizeDistribution(Vec<(u64, usize)>);

impl SizeDistribution {
    fn new(traffic: &DatagramCounters) -> Self {
        let sizes = traffic.by_size.iter().enumerate().filter(|(_, count)| **count > 0);
        let sums = sizes.scan(0, |sum, (size, count)| {
            *sum += count;
            Some((*sum, size))
        });
        Self(sums.collect())
    }

    fn draw(&self, rng: &mut Rng) -> usize {
        let total = self.0.last().map_or(0, |(sum, _)| *sum);
        let at = rng.below(total);
        let index = self.0.partition_point(|(sum, _)| *sum <= at);
        self.0.get(index).map_or(0, |(_, size)| *size)
    }
}

const FRAME_INTERVAL: Duration = Duration::from_millis(95);
const MIN_SLEEP: Duration = Duration::from_millis(1);
