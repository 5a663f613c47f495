package sim

import "container/list"

// kvCache is the pool of KV blocks. Blocks that nobody holds stay findable by
// the hash of their content until the pool needs them: the free list is in
// least-recently-used order. Not safe for concurrent use; the engine locks.
type kvCache struct {
	blockSize int
	caching   bool
	blocks    []kvBlock
	byHash    map[uint64]int
	free      *list.List // of block indexes, oldest first
}

type kvBlock struct {
	refs   int
	hash   uint64
	hashed bool
	elem   *list.Element // in free while refs is 0
}

func newKVCache(blocks, blockSize int, caching bool) *kvCache {
	c := &kvCache{
		blockSize: blockSize, caching: caching,
		blocks: make([]kvBlock, blocks), byHash: map[uint64]int{}, free: list.New(),
	}
	for i := range c.blocks {
		c.blocks[i].elem = c.free.PushBack(i)
	}
	return c
}

// lookup returns the blocks of the longest cached prefix. The last token is
// never taken from the cache, since its logits are wanted:
// at most floor((len-1)/blockSize) blocks.
func (c *kvCache) lookup(s *sequence) []int {
	if !c.caching {
		return nil
	}
	var hit []int
	for i := range (len(s.tokens) - 1) / c.blockSize {
		b, ok := c.byHash[s.blockHash(i, c.blockSize)]
		if !ok {
			break
		}
		hit = append(hit, b)
	}
	return hit
}

// admit gives a sequence without blocks the cached prefix and room for tokens
// tokens in all; false, and nothing taken, if there is no room.
func (c *kvCache) admit(s *sequence, prefix []int, tokens int) bool {
	fresh := c.blocksFor(tokens) - len(prefix)
	available := c.free.Len()
	for _, b := range prefix {
		if c.blocks[b].refs == 0 {
			available--
		}
	}
	if fresh > available {
		return false
	}
	for _, b := range prefix {
		c.hold(b)
	}
	s.blocks = append(s.blocks[:0], prefix...)
	s.hashed = len(prefix)
	return c.grow(s, tokens)
}

// grow makes room for tokens tokens in all; false, and nothing taken, if the
// pool is empty.
func (c *kvCache) grow(s *sequence, tokens int) bool {
	fresh := c.blocksFor(tokens) - len(s.blocks)
	if fresh > c.free.Len() {
		return false
	}
	for range fresh {
		b := c.free.Front().Value.(int)
		c.hold(b)
		if c.blocks[b].hashed {
			delete(c.byHash, c.blocks[b].hash)
			c.blocks[b].hashed = false
		}
		s.blocks = append(s.blocks, b)
	}
	return true
}

// commit makes the full blocks of what is computed findable.
func (c *kvCache) commit(s *sequence) {
	if !c.caching {
		return
	}
	for ; s.hashed < s.computed/c.blockSize; s.hashed++ {
		h := s.blockHash(s.hashed, c.blockSize)
		if _, ok := c.byHash[h]; ok {
			continue // another sequence computed the same block meanwhile
		}
		b := s.blocks[s.hashed]
		c.blocks[b].hash, c.blocks[b].hashed = h, true
		c.byHash[h] = b
	}
}

// release gives all blocks back, the last first, so that of one sequence the
// tail is evicted before the head that others may share.
func (c *kvCache) release(s *sequence) {
	for i := len(s.blocks) - 1; i >= 0; i-- {
		b := &c.blocks[s.blocks[i]]
		if b.refs--; b.refs == 0 {
			b.elem = c.free.PushBack(s.blocks[i])
		}
	}
	s.blocks, s.hashed = s.blocks[:0], 0
}

func (c *kvCache) hold(b int) {
	if c.blocks[b].refs == 0 {
		c.free.Remove(c.blocks[b].elem)
		c.blocks[b].elem = nil
	}
	c.blocks[b].refs++
}

func (c *kvCache) blocksFor(tokens int) int { return (tokens + c.blockSize - 1) / c.blockSize }

// used is how many blocks are held by sequences.
func (c *kvCache) used() int { return len(c.blocks) - c.free.Len() }
