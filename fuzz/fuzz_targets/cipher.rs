//! Decryption undoes encryption, the first byte stays, and a batch equals one datagram at a time.
#![no_main]

use bcnet_wire::cipher::{decrypt, decrypt_batch, encrypt, encrypt_batch};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let plain = split_datagrams(input);
    let mut wire = plain.clone();
    wire.iter_mut().for_each(|datagram| encrypt(datagram));
    assert!(plain.iter().zip(&wire).all(|(p, w)| p.len() == w.len() && p.first() == w.first()));
    assert_eq!(apply_to_batch(&plain, encrypt_batch), wire);
    assert_eq!(apply_to_batch(&wire, decrypt_batch), plain);
    wire.iter_mut().for_each(|datagram| decrypt(datagram));
    assert_eq!(wire, plain);
});

/// Splits the input into datagrams of 0 to 765 bytes. A third of its length is before each.
fn split_datagrams(mut input: &[u8]) -> Vec<Vec<u8>> {
    let mut datagrams = Vec::new();
    while let Some((&third, rest)) = input.split_first() {
        let (datagram, rest) = rest.split_at(rest.len().min(3 * usize::from(third)));
        datagrams.push(datagram.to_vec());
        input = rest;
    }
    datagrams
}

fn apply_to_batch(datagrams: &[Vec<u8>], change: fn(&mut [&mut [u8]])) -> Vec<Vec<u8>> {
    let mut datagrams = datagrams.to_vec();
    change(&mut datagrams.iter_mut().map(Vec::as_mut_slice).collect::<Vec<_>>());
    datagrams
}
