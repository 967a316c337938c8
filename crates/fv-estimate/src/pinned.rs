//! Page-locked host memory.

/// Bytes that PyTorch's caching host allocator takes: each request rounded up to a power of two.
pub fn pinned_bytes(sizes: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
    let mut sum = 0u64;
    for (bytes, count) in sizes {
        sum = sum.checked_add(bytes.checked_next_power_of_two()?.checked_mul(count)?)?;
    }
    Some(sum)
}

/// Bytes when each buffer is registered as it is: whole pages.
pub fn registered_bytes(sizes: impl Iterator<Item = (u64, u64)>) -> Option<u64> {
    let mut sum = 0u64;
    for (bytes, count) in sizes {
        sum = sum.checked_add(bytes.checked_next_multiple_of(4096)?.checked_mul(count)?)?;
    }
    Some(sum)
}
