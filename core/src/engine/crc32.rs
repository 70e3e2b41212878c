//! The CRC-32 of zlib, eight bytes at a time: clients have it at hand without any package.

const POLYNOMIAL: u32 = 0xedb8_8320;
const TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0u32; 256]; 8];
    let mut index = 0;
    while index < 256 {
        let mut value = index as u32;
        let mut bit = 0;
        while bit < 8 {
            value = if value & 1 == 1 {
                value >> 1 ^ POLYNOMIAL
            } else {
                value >> 1
            };
            bit += 1;
        }
        tables[0][index] = value;
        index += 1;
    }
    let mut table = 1;
    while table < 8 {
        let mut index = 0;
        while index < 256 {
            let before = tables[table - 1][index];
            tables[table][index] = before >> 8 ^ tables[0][(before & 255) as usize];
            index += 1;
        }
        table += 1;
    }
    tables
}

/// The sum of what has `sum` (0: nothing), followed by `bytes`.
#[must_use]
pub fn crc32(sum: u32, bytes: &[u8]) -> u32 {
    let mut value = !sum;
    let mut eights = bytes.chunks_exact(8);
    for eight in &mut eights {
        let low = value ^ u32::from_le_bytes([eight[0], eight[1], eight[2], eight[3]]);
        let first = low.to_le_bytes();
        value = 0;
        for (table, byte) in (4..8).rev().zip(first) {
            value ^= TABLES[table][usize::from(byte)];
        }
        for (table, &byte) in (0..4).rev().zip(&eight[4..]) {
            value ^= TABLES[table][usize::from(byte)];
        }
    }
    for &byte in eights.remainder() {
        value = value >> 8 ^ TABLES[0][((value ^ u32::from(byte)) & 255) as usize];
    }
    !value
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_the_sum_that_zlib_makes_however_the_bytes_are_cut() {
        let known: [(&[u8], u32); 3] = [
            (b"", 0),
            (b"123456789", 0xcbf4_3926),
            (b"The quick brown fox jumps over the lazy dog", 0x414f_a339),
        ];
        for (bytes, sum) in known {
            for cut in 0..=bytes.len() {
                assert_eq!(crc32(crc32(0, &bytes[..cut]), &bytes[cut..]), sum);
            }
        }
    }
}
