//! Answers of a probe client to file checks, byte by byte, written without the library.

use bcnet_lab::Rng;

/// Returns the answer to a round of the file check, or `None` for an unknown round.
///
/// It has the numbers of files and directories of an unmodified game.
pub(super) fn answer(round: u8) -> Option<Vec<u8>> {
    let mut reply = vec![0x21, round];
    let mut rng = Rng::new(round.into());
    let (directory, files, subdirectories): (u32, u16, &[u16]) = match round {
        0 => {
            reply.extend(VERSION.to_le_bytes());
            (SCRIPTS, 1, &[])
        }
        1 => (SCRIPTS, 1, &[]),
        2 => (0xC017_D1C4, 51, &[51]),
        3 => (0x3409_475D, 4, &[]),
        0xFF => (0x8794_D13F, 8, &[4, 4, 4, 4, 4]),
        _ => return None,
    };
    reply.extend(directory.to_le_bytes());
    append_tree(&mut reply, &mut rng, files, subdirectories);
    Some(reply)
}

fn append_tree(reply: &mut Vec<u8>, rng: &mut Rng, files: u16, subdirectories: &[u16]) {
    let mut hashes = |reply: &mut Vec<u8>, count: usize| {
        let at = reply.len();
        reply.resize(at + 4 * count, 0);
        rng.fill(reply.get_mut(at..).unwrap_or_default());
    };
    reply.extend(files.to_le_bytes());
    hashes(reply, 2 * usize::from(files));
    reply.push(subdirectories.len() as u8);
    hashes(reply, subdirectories.len());
    for files in subdirectories {
        append_tree(reply, rng, *files, &[]);
    }
}

const VERSION: u32 = 0x7E0C_E243;
const SCRIPTS: u32 = 0x4DAF_CB2F;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_recorded_sizes() {
        let sizes = [0, 1, 2, 3, 0xFF].map(|round| answer(round).map(|answer| answer.len()));
        assert_eq!(sizes, [21, 17, 832, 41, 268].map(Some));
        assert_eq!(answer(4), None);
    }
}
