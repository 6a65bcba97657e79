//! The byte alphabet of GPT-2: byte-level vocabularies write each byte as one printable character.
//!
//! Printable ASCII and most of Latin-1 stand for themselves; the other 68 bytes are written as
//! U+0100, U+0101, ... in order (openai/gpt-2, `encoder.py`, `bytes_to_unicode`).

/// The character that writes `byte`.
#[cfg(test)]
pub(crate) fn char_of(byte: u8) -> char {
    let stands_for_itself = |b: u8| matches!(b, 0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF);
    if stands_for_itself(byte) {
        byte as char
    } else {
        let before = (0..byte).filter(|&b| !stands_for_itself(b)).count() as u32;
        char::from_u32(0x100 + before).expect("at most 68 characters above U+0100")
    }
}

/// The byte that `c` writes, if it is in the alphabet.
pub(crate) fn byte_of(c: char) -> Option<u8> {
    match c as u32 {
        v @ (0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF) => Some(v as u8),
        v @ 0x100..=0x120 => Some((v - 0x100) as u8),
        v @ 0x121..=0x142 => Some((v - 0x121) as u8 + 0x7F),
        0x143 => Some(0xAD),
        _ => None,
    }
}

/// Appends the bytes that `token` writes; false (and nothing appended) when a character is outside
/// the alphabet.
pub(crate) fn decode(token: &str, out: &mut Vec<u8>) -> bool {
    let start = out.len();
    for c in token.chars() {
        match byte_of(c) {
            Some(b) => out.push(b),
            None => {
                out.truncate(start);
                return false;
            }
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_has_one_character_and_back() {
        let mut seen = std::collections::HashSet::new();
        for b in 0..=255u8 {
            let c = char_of(b);
            assert!(seen.insert(c));
            assert_eq!(byte_of(c), Some(b));
        }
        assert_eq!(char_of(b' '), 'Ġ');
        assert_eq!(char_of(b'\n'), 'Ċ');
        let others = (0..0x3000u32).filter_map(char::from_u32).filter(|&c| byte_of(c).is_some()).count();
        assert_eq!(others, 256);
    }
}
