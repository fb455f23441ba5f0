//! Speed of the cipher and of the wire codec; see [`runner`] for the arguments.

use std::hint::black_box;
use std::num::NonZeroU8;
use std::process::ExitCode;

use bcnet_wire::cipher::{self, portable};
use bcnet_wire::{
    Ack, Body, Channel, Control, Data, Datagram, Delivery, Fragment, Message, MessageId, PeerId, Role, Seq,
    Writer,
};
use runner::BenchWorkload;

#[path = "../tests/oracle/mod.rs"]
mod oracle;
mod runner;

fn main() -> ExitCode {
    let mut workloads = cipher_workloads();
    workloads.extend(wire_workloads());
    runner::main(workloads)
}

fn cipher_workloads() -> Vec<BenchWorkload> {
    const ENCRYPT: &str = "cipher/encrypt-textbook";
    const DECRYPT: &str = "cipher/decrypt-textbook";
    const FULL: [usize; 16] = [511; 16];
    // Mostly small datagrams and a few full ones, as in a game in progress.
    const MIXED: [usize; 64] = {
        let cycle = [12, 40, 511, 70, 23, 200, 33];
        let mut lengths = [0; 64];
        let mut i = 0;
        while i < 64 {
            lengths[i] = cycle[i % cycle.len()];
            i += 1;
        }
        lengths
    };
    vec![
        single_workload(ENCRYPT, ENCRYPT, &FULL, oracle::encrypt),
        single_workload(DECRYPT, DECRYPT, &FULL, oracle::decrypt),
        single_workload("cipher/encrypt-one", ENCRYPT, &FULL, cipher::encrypt),
        single_workload("cipher/decrypt-one", DECRYPT, &FULL, cipher::decrypt),
        batch_workload("cipher/encrypt-batch16", ENCRYPT, &FULL, cipher::encrypt_batch),
        batch_workload("cipher/decrypt-batch16", DECRYPT, &FULL, cipher::decrypt_batch),
        single_workload("cipher/encrypt-one-portable", ENCRYPT, &FULL, portable::encrypt),
        batch_workload("cipher/encrypt-batch16-portable", ENCRYPT, &FULL, portable::encrypt_batch),
        batch_workload("cipher/decrypt-batch16-portable", DECRYPT, &FULL, portable::decrypt_batch),
        single_workload("cipher/encrypt-one-mixed", ENCRYPT, &MIXED, cipher::encrypt),
        single_workload("cipher/decrypt-one-mixed", DECRYPT, &MIXED, cipher::decrypt),
        batch_workload("cipher/encrypt-batch64-mixed", ENCRYPT, &MIXED, cipher::encrypt_batch),
        batch_workload("cipher/decrypt-batch64-mixed", DECRYPT, &MIXED, cipher::decrypt_batch),
    ]
}

/// Returns workloads that parse and write the three datagrams of most traffic.
fn wire_workloads() -> Vec<BenchWorkload> {
    let datagrams = [
        (join_reply(), ["wire/parse-join-reply", "wire/read-join-reply", "wire/write-join-reply"]),
        (small_messages(), ["wire/parse-12-small", "wire/read-12-small", "wire/write-12-small"]),
        (fragment(), ["wire/parse-fragment", "wire/read-fragment", "wire/write-fragment"]),
    ];
    datagrams.into_iter().flat_map(|(datagram, names)| wire_workload(datagram.leak(), names)).collect()
}

fn wire_workload(bytes: &'static [u8], [parse, read, write]: [&'static str; 3]) -> [BenchWorkload; 3] {
    let datagram = Datagram::parse(bytes, Some(Role::Host)).expect("a datagram made by the benchmark parses");
    let messages: Vec<Message<'_>> = datagram.messages().collect();
    let units = messages.len();
    let workload =
        |name, iteration| BenchWorkload { name, unit: "message", units, baseline: name, iteration };
    [
        workload(
            parse,
            Box::new(|| {
                black_box(Datagram::parse(black_box(bytes), None).is_ok());
            }),
        ),
        workload(
            read,
            Box::new(|| {
                let datagram =
                    Datagram::parse(black_box(bytes), None).expect("a datagram made by the benchmark parses");
                for message in datagram.messages() {
                    black_box(message.wire_len());
                }
            }),
        ),
        workload(
            write,
            Box::new(move || {
                let AlignedBuffer(buffer) = &mut AlignedBuffer([0; 512]);
                let mut writer = Writer::new(buffer, PeerId::HOST);
                black_box(&messages).iter().for_each(|message| assert!(writer.push(message)));
                black_box(writer.finish().map(|datagram| datagram.len()));
            }),
        ),
    ]
}

/// A buffer with fixed alignment: the copy instructions depend on it, and the start of the stack varies.
#[repr(align(64))]
struct AlignedBuffer([u8; 512]);

/// A connect reply with the first game message: 35 bytes.
fn join_reply() -> Vec<u8> {
    let reply = Message::Control(Control::new(Seq(0), Body::ConnectReply { assigned: PeerId(2) }));
    datagram(&[reply, data(Delivery::Reliable(Seq(0)), &[0x20; 22])], 35)
}

/// Three ACKs and nine messages of 45 to 54 bytes, every second one reliable: 500 bytes.
fn small_messages() -> Vec<u8> {
    let ack =
        |seq| Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq: Seq(seq), fragment: None }));
    let acks = (0..3).map(ack);
    let payload = &[0x1C; 60];
    let data = (0..9_usize).map(|i| {
        let delivery = if i % 2 == 0 { Delivery::Unreliable } else { Delivery::Reliable(Seq(7)) };
        data(delivery, &payload[..if i == 8 { 55 } else { 46 + i }])
    });
    datagram(&acks.chain(data).collect::<Vec<_>>(), 500)
}

/// An ACK and the first fragment of a large payload: 418 bytes.
fn fragment() -> Vec<u8> {
    let ack = Message::Ack(Ack::new(MessageId { channel: Channel::Game, seq: Seq(2), fragment: None }));
    let part = Fragment::First { total: NonZeroU8::new(3).expect("the total is not zero") };
    datagram(&[ack, data(Delivery::Fragment(Seq(2), part), &[0x21; 405])], 418)
}

fn data(delivery: Delivery, payload: &[u8]) -> Message<'_> {
    Message::Data(Data { delivery, urgent: false, payload })
}

fn datagram(messages: &[Message<'_>], len: usize) -> Vec<u8> {
    let mut buffer = [0; 512];
    let mut writer = Writer::new(&mut buffer, PeerId::HOST);
    messages.iter().for_each(|message| assert!(writer.push(message)));
    let datagram = writer.finish().expect("the datagram has a message").to_vec();
    assert_eq!(datagram.len(), len);
    datagram
}

fn single_workload(
    name: &'static str,
    baseline: &'static str,
    lengths: &[usize],
    cipher: fn(&mut [u8]),
) -> BenchWorkload {
    let mut datagrams = datagrams(lengths);
    let iteration = Box::new(move || datagrams.iter_mut().for_each(|datagram| cipher(black_box(datagram))));
    BenchWorkload { name, unit: "byte", units: encrypted_bytes(lengths), baseline, iteration }
}

fn batch_workload(
    name: &'static str,
    baseline: &'static str,
    lengths: &[usize],
    cipher: fn(&mut [&mut [u8]]),
) -> BenchWorkload {
    let mut datagrams: Vec<_> = datagrams(lengths).into_iter().map(Vec::leak).collect();
    let iteration = Box::new(move || cipher(black_box(&mut datagrams)));
    BenchWorkload { name, unit: "byte", units: encrypted_bytes(lengths), baseline, iteration }
}

/// Returns the number of bytes that the cipher changes.
fn encrypted_bytes(lengths: &[usize]) -> usize {
    lengths.iter().map(|length| length - 1).sum()
}

fn datagrams(lengths: &[usize]) -> Vec<Vec<u8>> {
    let mut state = 0x2545_F491_4F6C_DD1Du64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    lengths.iter().map(|&length| (0..length).map(|_| byte()).collect()).collect()
}
