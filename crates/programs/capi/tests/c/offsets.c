/*
 * Offsets: frames begin at the offset in a slot's ptr, on VALE ports, pipes, monitors, persistent and null ports; invalid values are refused
 * with netmap's errno, also in the option's status.
 * Usage: offsets A B
 */
#include "common.h"

#define STATUS_OF(o) ((int)(o)->nro_opt.nro_status)

static struct nmreq_opt_offsets
asked(uint64_t initial, uint64_t max, uint32_t bits)
{
	struct nmreq_opt_offsets o = { .nro_opt.nro_reqtype = NETMAP_REQ_OPT_OFFSETS, .nro_initial_offset = initial };

	o.nro_max_offset = max;
	o.nro_offset_bits = bits;
	return o;
}

static struct nmreq_register
mode(uint32_t m, uint64_t flags)
{
	struct nmreq_register r = { .nr_mode = m, .nr_flags = flags };

	return r;
}

/* Registers with the option. Returns 0, or the errno. */
static int
try(struct port *p, const char *name, struct nmreq_register reg, struct nmreq_opt_offsets *o)
{
	struct nmreq_header h;
	int failed;

	memset(p, 0, sizeof(*p));
	p->reg = reg;
	p->fd = device();
	header(&h, name, NETMAP_REQ_REGISTER, &p->reg);
	h.nr_options = (uintptr_t)o;
	failed = ioctl(p->fd, NIOCCTRL, &h) == 0 ? 0 : errno;
	if (failed) {
		close(p->fd);
		return failed;
	}
	p->mem = mmap(NULL, p->reg.nr_memsize, PROT_READ | PROT_WRITE, MAP_SHARED, p->fd, 0);
	CHECK(p->mem != MAP_FAILED, "mmap %s", name);
	p->nifp = NETMAP_IF(p->mem, p->reg.nr_offset);
	return 0;
}

static struct port
open_at(const char *name, uint64_t initial, uint64_t max, uint32_t bits)
{
	struct nmreq_opt_offsets o = asked(initial, max, bits);
	struct port p;
	int failed = try(&p, name, mode(NR_REG_ALL_NIC, 0), &o);

	CHECK(failed == 0 && STATUS_OF(&o) == 0, "%s: %d, status %d", name, failed, STATUS_OF(&o));
	CHECK(o.nro_max_offset == max, "max %llu", (unsigned long long)o.nro_max_offset);
	return p;
}

static void
all_slots_hold(const struct netmap_ring *r, uint64_t mask, uint64_t offset)
{
	uint32_t i;

	CHECK(r->offset_mask == mask, "mask %llx", (unsigned long long)r->offset_mask);
	for (i = 0; i < r->num_slots; i++)
		CHECK(NETMAP_ROFFSET(r, &r->slot[i]) == offset, "slot %u: %llx", i, (unsigned long long)r->slot[i].ptr);
}

/* Puts a frame at an offset of the next slot. */
static struct netmap_slot *
put(struct netmap_ring *r, uint64_t offset, uint16_t len, uint16_t flags, uint32_t seq)
{
	struct netmap_slot *s = &r->slot[r->head];

	CHECK(r->head != r->tail, "room");
	NETMAP_WOFFSET(r, s, offset);
	memset(NETMAP_BUF(r, s->buf_idx), 0xee, r->nr_buf_size);
	if (offset + len <= r->nr_buf_size)
		fill(NETMAP_BUF(r, s->buf_idx) + offset, len, seq);
	s->len = len;
	s->flags = flags;
	r->head = r->cur = nm_ring_next(r, r->head);
	return s;
}

static void
sync_tx(struct port *p)
{
	CHECK(ioctl(p->fd, NIOCTXSYNC, NULL) == 0, "txsync");
}

static struct netmap_slot *
wait_for_slot(struct port *p)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);

	CHECK(poll_for(p->fd, POLLIN, 5000) & POLLIN, "a frame");
	return &r->slot[r->head];
}

/* Takes the next frame, which must be number `seq` at this offset. The slot is returned with the offset `next`. */
static void
take(struct port *p, uint64_t offset, uint16_t len, uint32_t seq, uint64_t next)
{
	struct netmap_ring *r = NETMAP_RXRING(p->nifp, 0);
	struct netmap_slot *s = wait_for_slot(p);
	char frame[4096];

	CHECK(NETMAP_ROFFSET(r, s) == offset, "offset %llx of frame %u", (unsigned long long)s->ptr, seq);
	CHECK(s->len == len && !(s->flags & NS_MOREFRAG), "length %u of frame %u", s->len, seq);
	fill(frame, len, seq);
	CHECK(memcmp(NETMAP_BUF(r, s->buf_idx) + offset, frame, len) == 0, "content of frame %u", seq);
	NETMAP_WOFFSET(r, s, next);
	r->head = r->cur = nm_ring_next(r, r->head);
}

static void
refused(const char *name, struct nmreq_register reg, struct nmreq_opt_offsets o, int why, int status)
{
	struct port p;
	int failed = try(&p, name, reg, &o);

	CHECK(failed == why && STATUS_OF(&o) == status, "%s: %d, status %d", name, failed, STATUS_OF(&o));
}

static void
refusals(const char *name)
{
	struct nmreq_register all = mode(NR_REG_ALL_NIC, 0);
	struct port p;

	refused(name, all, asked(0, 64, 65), EINVAL, EINVAL);
	refused(name, all, asked(0, 64, 4000000000u), EINVAL, EINVAL);
	refused(name, all, asked(0, 1 << 20, 0), EINVAL, EINVAL);
	refused(name, all, asked(0, (1ull << 32) + 1, 0), EINVAL, EINVAL);
	refused(name, all, asked(0, 256, 8), EINVAL, EINVAL);
	refused(name, all, asked(65, 64, 0), EINVAL, EINVAL);
	refused(name, all, asked((1ull << 32) + 1, 64, 0), EINVAL, EINVAL);
	refused("offsets{1", mode(NR_REG_ALL_NIC, 0), asked(0, 256, 8), EINVAL, EINVAL);
	/* A failure before the option was read leaves its status unset. */
	refused("nosuchif0", all, asked(0, 64, 0), ENXIO, EOPNOTSUPP);
	/* No trace of these requests is left. */
	p = open_port(name);
	all_slots_hold(NETMAP_TXRING(p.nifp, 0), 0, 0);
	refused(name, mode(NR_REG_ALL_NIC, NR_ZCOPY_MON), asked(0, 64, 0), EOPNOTSUPP, EOPNOTSUPP);
	close_port(&p);
	p = open_at(name, 0, 255, 8);
	all_slots_hold(NETMAP_TXRING(p.nifp, 0), 255, 0);
	close_port(&p);
}

/* From any offset of a sender's slots to any of a receiver's. */
static void
switched(const char *from_name, const char *to_name)
{
	struct port from = open_at(from_name, 64, 128, 16), to = open_at(to_name, 32, 512, 0);
	struct netmap_ring *tx = NETMAP_TXRING(from.nifp, 0), *rx = NETMAP_RXRING(to.nifp, 0);
	struct netmap_slot *s;
	uint32_t seq = 0, i, n = rx->num_slots, size = tx->nr_buf_size;

	all_slots_hold(tx, 0xffff, 64);
	all_slots_hold(NETMAP_RXRING(from.nifp, 0), 0xffff, 64);
	all_slots_hold(rx, ~0ull, 32);
	for (i = 0; i < 2 * n; i++, seq += 3) {
		put(tx, 64, FRAME, 0, seq);
		put(tx, 0, FRAME, 0, seq + 1);
		s = put(tx, 128, 1000, 0, seq + 2);
		/* Bits outside the offset belong to the program. */
		s->ptr |= 0xabc0000;
		sync_tx(&from);
		take(&to, i * 3 < n ? 32 : 100, FRAME, seq, 100);
		take(&to, i * 3 + 1 < n ? 32 : 100, FRAME, seq + 1, 100);
		take(&to, i * 3 + 2 < n ? 32 : 100, 1000, seq + 2, 100);
		CHECK(s->ptr == (0xabc0000 | 128), "ptr %llx", (unsigned long long)s->ptr);
		s->ptr = 64;
		CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		sync_tx(&from);
	}
	/* An offset beyond the largest counts as the largest, on both sides. */
	s = &tx->slot[tx->head];
	put(tx, 128, FRAME, 0, seq);
	NETMAP_WOFFSET(tx, s, 5000);
	sync_tx(&from);
	take(&to, 100, FRAME, seq++, 100);
	for (i = 0; i < n; i++) {
		put(tx, 64, FRAME, 0, seq);
		sync_tx(&from);
		take(&to, 100, FRAME, seq++, 600);
		CHECK(ioctl(to.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
	}
	put(tx, 64, FRAME, 0, seq);
	/* There is no room for this frame after that offset: its slot arrives empty. */
	put(tx, 64, (uint16_t)(size - 64), 0, seq + 1);
	/* This frame does not fit after its own offset. */
	put(tx, 128, (uint16_t)(size - 127), 0, seq + 2);
	put(tx, 128, (uint16_t)(size - 700), 0, seq + 3);
	sync_tx(&from);
	take(&to, 512, FRAME, seq, 0);
	s = wait_for_slot(&to);
	while (s->len == 0) {
		rx->head = rx->cur = nm_ring_next(rx, rx->head);
		s = wait_for_slot(&to);
	}
	take(&to, 512, (uint16_t)(size - 700), seq + 3, 0);
	close_port(&to);
	/* The reverse: to and from a port without offsets. */
	to = open_port(to_name);
	all_slots_hold(NETMAP_RXRING(to.nifp, 0), 0, 0);
	put(tx, 77, FRAME, 0, 1);
	sync_tx(&from);
	take(&to, 0, FRAME, 1, 0);
	put(NETMAP_TXRING(to.nifp, 0), 0, FRAME, 0, 2);
	sync_tx(&to);
	take(&from, 64, FRAME, 2, 64);
	close_port(&to);
	close_port(&from);
}

/* Frames of several slots, at an offset in each. */
static void
several_slots(const char *from_name, const char *to_name)
{
	struct port from = open_at(from_name, 40, 64, 0), to = open_at(to_name, 200, 200, 0);
	struct netmap_ring *tx = NETMAP_TXRING(from.nifp, 0), *rx = NETMAP_RXRING(to.nifp, 0);
	uint32_t i, round, more = 1, len = 0;
	char whole[3000], got[8192];

	for (round = 0; round < 300; round++) {
		fill(whole, sizeof(whole), round);
		for (i = 0; i < 3; i++) {
			struct netmap_slot *s = put(tx, 40 + 10 * i, 1000, i < 2 ? NS_MOREFRAG : 0, 0);

			memcpy(NETMAP_BUF_OFFSET(tx, s), whole + 1000 * i, 1000);
		}
		sync_tx(&from);
		for (more = 1, len = 0; more;) {
			struct netmap_slot *s = wait_for_slot(&to);

			CHECK(NETMAP_ROFFSET(rx, s) == 200 && s->len + 200u <= rx->nr_buf_size, "%u bytes", s->len);
			memcpy(got + len, NETMAP_BUF_OFFSET(rx, s), s->len);
			len += s->len;
			more = s->flags & NS_MOREFRAG;
			rx->head = rx->cur = nm_ring_next(rx, rx->head);
		}
		CHECK(len == sizeof(whole) && memcmp(got, whole, len) == 0, "%u bytes", len);
	}
	close_port(&from);
	close_port(&to);
}

/* A program that shares a ring gets the ring's offsets, if they suffice. */
static void
shared(const char *name)
{
	struct nmreq_register all = mode(NR_REG_ALL_NIC, 0);
	struct nmreq_opt_offsets o = asked(8, 50, 4);
	struct port first = open_at(name, 32, 100, 10), second;
	struct netmap_ring *r = NETMAP_TXRING(first.nifp, 0);

	refused(name, all, asked(0, 100, 11), EBUSY, EBUSY);
	refused(name, all, asked(0, 101, 10), EBUSY, EBUSY);
	refused(name, all, asked(0, 64, 0), EBUSY, EBUSY);
	refused(name, all, asked(0, 50, 4), EINVAL, EINVAL);
	o.nro_offset_bits = 6;
	CHECK(try(&second, name, all, &o) == 0 && STATUS_OF(&o) == 0, "fewer");
	CHECK(o.nro_max_offset == 100, "max %llu", (unsigned long long)o.nro_max_offset);
	all_slots_hold(NETMAP_TXRING(second.nifp, 0), 1023, 32);
	close_port(&second);
	second = open_port(name);
	all_slots_hold(r, 1023, 32);
	close_port(&first);
	all_slots_hold(NETMAP_RXRING(second.nifp, 0), 1023, 32);
	close_port(&second);
}

/* Both ways between two ends, one of which may only find the offsets in its rings. */
static void
piped(int other_asks)
{
	struct port a = open_at("offsets{1", 48, 256, 0), b;
	uint32_t i, way;

	b = other_asks ? open_at("offsets}1", 48, 128, 32) : open_port("offsets}1");
	all_slots_hold(NETMAP_RXRING(b.nifp, 0), other_asks ? 0xffffffff : ~0ull, 48);
	all_slots_hold(NETMAP_TXRING(b.nifp, 0), other_asks ? 0xffffffff : ~0ull, 48);
	for (way = 0; way < 2; way++) {
		struct port *from = way ? &b : &a, *to = way ? &a : &b;
		struct netmap_ring *tx = NETMAP_TXRING(from->nifp, 0);

		for (i = 0; i < 1500; i++) {
			CHECK(NETMAP_ROFFSET(tx, &tx->slot[tx->head]) == (i < tx->num_slots ? 48 : 55), "slots keep their offsets");
			put(tx, 55, FRAME, 0, i);
			sync_tx(from);
			take(to, 55, FRAME, i, 55);
			CHECK(ioctl(to->fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		}
	}
	close_port(&a);
	close_port(&b);
}

/* A persistent port, on a switch and not; the next program after one with offsets finds none. */
static void
persistent(const char *from_name)
{
	struct nmreq_vale_newif newif = { 0 };
	struct nmreq_vale_attach attach = { 0 };
	struct nmreq_vale_detach detach = { 0 };
	struct port p, from = open_port(from_name);
	struct netmap_ring *tx = NETMAP_TXRING(from.nifp, 0), *rx;
	char name[64];
	int fd = device(), round;
	uint32_t i;

	snprintf(name, sizeof(name), "%.*s:nvoff", (int)(strchr(from_name, ':') - from_name), from_name);
	CHECK(request(fd, "nvoff", NETMAP_REQ_VALE_NEWIF, &newif) == 0, "new port");
	p = open_at("nvoff", 16, 64, 0);
	all_slots_hold(NETMAP_TXRING(p.nifp, 0), ~0ull, 16);
	close_port(&p);
	CHECK(request(fd, name, NETMAP_REQ_VALE_ATTACH, &attach) == 0, "attach");
	for (round = 0; round < 3; round++) {
		/* Frames that arrived while no program had the port open keep their offsets. */
		put(tx, 0, FRAME, 0, 7);
		sync_tx(&from);
		while (tx->tail != (tx->head ? tx->head - 1 : tx->num_slots - 1))
			sync_tx(&from);
		p = open_at(name, 16, 64, 0);
		rx = NETMAP_RXRING(p.nifp, 0);
		CHECK(ioctl(p.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		while (rx->head != rx->tail)
			take(&p, 0, FRAME, 7, 16);
		all_slots_hold(NETMAP_TXRING(p.nifp, 0), ~0ull, 16);
		for (i = 0; i < 20; i++) {
			put(tx, 0, FRAME, 0, i);
			sync_tx(&from);
			take(&p, 16, FRAME, i, 16);
			put(NETMAP_TXRING(p.nifp, 0), i, FRAME, 0, i);
			sync_tx(&p);
			take(&from, 0, FRAME, i, 0);
		}
		/* A frame that it does not take with it. */
		put(tx, 0, FRAME, 0, 99);
		sync_tx(&from);
		wait_for_slot(&p);
		close_port(&p);
		p = open_port(name);
		while (NETMAP_RXRING(p.nifp, 0)->offset_mask) {
			/* The daemon detects the end a moment later: until then this program shares the rings. */
			close_port(&p);
			p = open_port(name);
		}
		all_slots_hold(NETMAP_RXRING(p.nifp, 0), 0, 0);
		put(tx, 0, FRAME, 0, 100);
		sync_tx(&from);
		take(&p, 0, FRAME, 100, 0);
		CHECK(ioctl(p.fd, NIOCRXSYNC, NULL) == 0, "rxsync");
		close_port(&p);
	}
	CHECK(request(fd, name, NETMAP_REQ_VALE_DETACH, &detach) == 0, "detach");
	CHECK(request(fd, "nvoff", NETMAP_REQ_VALE_DELIF, NULL) == 0, "delete");
	close(fd);
	close_port(&from);
}

static void
monitored(const char *from_name, const char *to_name)
{
	struct port from = open_at(from_name, 64, 64, 0), to = open_port(to_name), monitor;
	struct nmreq_opt_offsets o = asked(24, 24, 0);
	uint32_t i;

	CHECK(try(&monitor, from_name, mode(NR_REG_ALL_NIC, NR_MONITOR_TX), &o) == 0 && STATUS_OF(&o) == 0, "monitor");
	for (i = 0; i < 10; i++) {
		put(NETMAP_TXRING(from.nifp, 0), 64, FRAME, 0, i);
		sync_tx(&from);
		take(&monitor, 24, FRAME, i, 24);
		take(&to, 0, FRAME, i, 0);
	}
	close_port(&monitor);
	close_port(&from);
	close_port(&to);
}

static void
null_port(const char *name)
{
	struct nmreq_register reg = mode(NR_REG_NULL, 0);
	struct port with = open_port(name), p;
	struct nmreq_opt_offsets o = asked(12, 20, 5);

	reg.nr_mem_id = with.reg.nr_mem_id;
	reg.nr_tx_rings = reg.nr_rx_rings = 1;
	reg.nr_tx_slots = reg.nr_rx_slots = 64;
	CHECK(try(&p, "null", reg, &o) == 0 && STATUS_OF(&o) == 0, "null port: %d", STATUS_OF(&o));
	all_slots_hold(NETMAP_TXRING(p.nifp, 0), 31, 12);
	all_slots_hold(NETMAP_RXRING(p.nifp, 0), 31, 12);
	close_port(&p);
	close_port(&with);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 3, "two ports");
	alarm(100);
	refusals(argv[1]);
	switched(argv[1], argv[2]);
	several_slots(argv[1], argv[2]);
	shared(argv[1]);
	piped(0);
	piped(1);
	persistent(argv[1]);
	monitored(argv[1], argv[2]);
	null_port(argv[1]);
	return 0;
}
