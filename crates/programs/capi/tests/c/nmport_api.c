/* libnetmap's functions one by one. Usage: nmport_api SWITCH */
#include "common.h"
#include <libnetmap.h>

static char last[1024];
static int errors, locks;

static void
note_error(struct nmctx *ctx, const char *text)
{
	(void)ctx;
	errors++;
	snprintf(last, sizeof(last), "%s", text);
}

static void
note_lock(struct nmctx *ctx, int lock)
{
	(void)ctx;
	locks += lock ? 1 : -1;
}

static void
contexts(void)
{
	static struct nmctx own;
	struct nmctx *before = nmctx_get();

	own = *before;
	own.error = note_error;
	own.lock = note_lock;
	own.verbose = 1;
	CHECK(nmctx_set_default(&own) == before && nmctx_get() == &own, "a context of our own");
	nmctx_ferror(&own, "%s %d %.2f %c %lu %lld %s %5.1f", "text", -7, 2.5, 'x', 99ul, -1ll, "more", 1.25);
	CHECK(strcmp(last, "text -7 2.50 x 99 -1 more   1.2") == 0, "'%s'", last);
	own.verbose = 0;
	nmctx_ferror(&own, "unseen");
	CHECK(errors == 1, "not verbose");
	own.verbose = 1;
	nmctx_free(&own, nmctx_malloc(&own, 100));
}

static void
names(void)
{
	static const struct {
		const char *spec, *name;
		uint32_t mode;
		uint16_t ring;
		uint64_t flags;
		uint16_t mem;
	} good[] = {
		{"netmap:eth0", "eth0", NR_REG_ALL_NIC, 0, 0, 0},
		{"netmap:eth0-3", "eth0", NR_REG_ONE_NIC, 3, 0, 0},
		{"netmap:eth0^", "eth0", NR_REG_SW, 0, 0, 0},
		{"netmap:eth0^2", "eth0", NR_REG_ONE_SW, 2, 0, 0},
		{"netmap:eth0*", "eth0", NR_REG_NIC_SW, 0, 0, 0},
		{"vale0:x@7/xR", "vale0:x", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE | NR_RX_RINGS_ONLY, 7},
		{"vale:x{p1/z", "vale:x{p1", NR_REG_ALL_NIC, 0, NR_ZCOPY_MON | NR_MONITOR_TX | NR_MONITOR_RX, 0},
		{"netmap:b}id/t", "b}id", NR_REG_ALL_NIC, 0, NR_MONITOR_TX, 0},
		{"netmap:veth-a", "veth-a", NR_REG_ALL_NIC, 0, 0, 0},
		{"netmap:veth-a-2", "veth-a", NR_REG_ONE_NIC, 2, 0, 0},
		{"netmap:vnet-3", "vnet", NR_REG_ONE_NIC, 3, 0, 0},
		{"netmap:'vnet-3'", "vnet-3", NR_REG_ALL_NIC, 0, 0, 0},
		{"netmap:'vnet-3'-1", "vnet-3", NR_REG_ONE_NIC, 1, 0, 0},
		{"lan:my.port/x", "lan:my.port", NR_REG_ALL_NIC, 0, NR_EXCLUSIVE, 0},
		{"br-lab:'web-1'{x@3", "br-lab:web-1{x", NR_REG_ALL_NIC, 0, 0, 3},
	};
	static const char *bad[] = {"", "eth0", "netmap:", "vale0", "netmap:a-", "netmap:'a", "tap:a", "netmap:'a'-x", "vale0:a/q", "vale0:a@conf:nonsense=1",
				    "vale0:a@offset:initial=64", "netmap:b{"};
	size_t i;

	for (i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		struct nmport_d *d = nmport_prepare(good[i].spec);
		const char *rest = good[i].spec;
		struct nmreq_header h = { 0 };
		struct nmreq_register r = { 0 };

		CHECK(d != NULL, "%s: %s", good[i].spec, last);
		CHECK(strcmp(d->hdr.nr_name, good[i].name) == 0, "%s: %s", good[i].spec, d->hdr.nr_name);
		CHECK(d->reg.nr_mode == good[i].mode && d->reg.nr_ringid == good[i].ring, "%s", good[i].spec);
		CHECK(d->reg.nr_flags == good[i].flags && d->reg.nr_mem_id == good[i].mem, "%s: %llx", good[i].spec,
		      (unsigned long long)d->reg.nr_flags);
		CHECK(d->hdr.nr_reqtype == NETMAP_REQ_REGISTER && d->hdr.nr_body == (uintptr_t)&d->reg && d->fd == -1, "request");
		CHECK(nmreq_header_decode(&rest, &h, nmctx_get()) == 0 && strcmp(h.nr_name, good[i].name) == 0, "by parts");
		CHECK(nmreq_register_decode(&rest, &r, nmctx_get()) == 0 && *rest == 0, "rest '%s'", rest);
		CHECK(r.nr_mode == good[i].mode && r.nr_flags == good[i].flags && r.nr_mem_id == good[i].mem, "mode by parts");
		nmport_undo_prepare(d);
	}
	for (i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		int before = errors;

		CHECK(nmport_prepare(bad[i]) == NULL, "%s is no name", bad[i]);
		CHECK(errors > before && (errno == EINVAL || errno == EOPNOTSUPP), "%s: told", bad[i]);
	}
}

static void
steps(const char *sw)
{
	struct nmport_d *d = nmport_new(), *copy, *other;
	char name[128];
	uint32_t i;

	CHECK(d != NULL, "new");
	snprintf(name, sizeof(name), "%s:a@conf:rings=2,slots=64", sw);
	CHECK(nmport_parse(d, name) == 0 && d->reg.nr_tx_rings == 2 && d->reg.nr_rx_slots == 64, "parse");
	CHECK(nmport_mmap(d) < 0 && errno == EINVAL, "not before it is registered");
	d->reg.nr_extra_bufs = 4;
	CHECK(nmport_register(d) == 0 && d->register_done && d->fd >= 0 && d->reg.nr_extra_bufs == 4, "register");
	CHECK(nmport_register(d) < 0 && errno == EINVAL, "once");
	CHECK(nmport_mmap(d) == 0 && d->mmap_done && d->nifp, "mmap");
	CHECK(d->first_tx_ring == 0 && d->last_tx_ring == 1 && d->first_rx_ring == 0 && d->last_rx_ring == 1, "rings");
	copy = nmport_clone(d);
	CHECK(copy && copy->fd == -1 && copy->reg.nr_mem_id == d->reg.nr_mem_id, "clone");
	copy->reg.nr_mode = NR_REG_ONE_NIC;
	copy->reg.nr_ringid = 1;
	copy->reg.nr_extra_bufs = 0;
	CHECK(nmport_open_desc(copy) == 0 && copy->mem == d->mem && copy->first_rx_ring == 1, "open the clone");
	snprintf(name, sizeof(name), "%s:b@share:%s:a", sw, sw);
	other = nmport_open(name);
	CHECK(other == NULL || other->mem == d->mem, "shared, if the region has room");
	if (other)
		nmport_close(other);
	snprintf(name, sizeof(name), "%s:b@share:%s:nosuch", sw, sw);
	CHECK(nmport_open(name) == NULL, "no such port to share with");
	for (i = 0; i < 100; i++)
		CHECK(nmport_inject(d, name, 60) == (i < 2 * 63 ? 0 : -1), "frame %u", i);
	CHECK(ioctl(d->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	nmport_undo_mmap(d);
	CHECK(d->mem == NULL && !d->mmap_done, "undone");
	nmport_undo_register(d);
	CHECK(d->fd == -1 && !d->register_done, "undone");
	nmport_undo_parse(d);
	nmport_delete(d);
	nmport_close(copy);
	CHECK(nmport_open("netmap:nosuchif0") == NULL && errno == ENXIO, "no such interface");
}

static void
extmem(const char *sw)
{
	size_t size = 8 << 20;
	char name[128], file[] = "/tmp/netvale-extmem-XXXXXX", *mem;
	struct nmport_d *d;
	struct nmreq_pools_info *info;
	int fd;

	mem = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_ANONYMOUS | MAP_SHARED, -1, 0);
	CHECK(mem != MAP_FAILED, "memory");
	snprintf(name, sizeof(name), "%s:e@conf:slots=128", sw);
	d = nmport_prepare(name);
	CHECK(d && nmport_extmem_getinfo(d) == NULL, "none yet");
	CHECK(nmport_extmem(d, mem, size) == 0 && nmport_extmem(d, mem, size) < 0, "once");
	info = nmport_extmem_getinfo(d);
	CHECK(info && info->nr_memsize == size && info->nr_buf_pool_objtotal > 100, "numbers");
	CHECK(nmport_clone(d) == NULL, "no clone yet");
	CHECK(nmport_open_desc(d) == 0, "%s", last);
	CHECK((char *)d->nifp >= mem && (char *)d->nifp < mem + size, "in our memory");
	nmport_close(d);
	munmap(mem, size);

	fd = mkstemp(file);
	CHECK(fd >= 0 && ftruncate(fd, (off_t)size) == 0, "file");
	snprintf(name, sizeof(name), "%s:f@extmem:file=%s,buf-num=512@conf:slots=128", sw, file);
	d = nmport_open(name);
	CHECK(d != NULL, "%s", last);
	info = nmport_extmem_getinfo(d);
	CHECK(info && info->nr_buf_pool_objtotal == 512, "buffers as asked");
	nmport_close(d);
	unlink(file);
	close(fd);
	nmport_disable_option("extmem");
	CHECK(nmport_open(name) == NULL && errno == EOPNOTSUPP, "disabled");
	CHECK(nmport_enable_option("extmem") == 0 && nmport_enable_option("nonsense") < 0, "enable");
}

/* Frames at an offset: nmport_inject puts them there. The option needs a program that enables it. */
static void
offsets(const char *sw)
{
	struct nmport_d *d, *to;
	struct netmap_ring *rx;
	char name[128], frame[FRAME];

	snprintf(name, sizeof(name), "%s:to", sw);
	to = nmport_open(name);
	CHECK(to != NULL, "%s", last);
	rx = NETMAP_RXRING(to->nifp, 0);
	snprintf(name, sizeof(name), "%s:o@offset:initial=64,bits=16", sw);
	CHECK(nmport_open(name) == NULL && errno == EOPNOTSUPP, "disabled unless enabled");
	CHECK(nmport_enable_option("offset") == 0, "enable");
	d = nmport_open(name);
	CHECK(d != NULL, "%s", last);
	CHECK(NETMAP_TXRING(d->nifp, 0)->offset_mask == 0xffff, "mask");
	CHECK(NETMAP_ROFFSET(NETMAP_TXRING(d->nifp, 0), &NETMAP_TXRING(d->nifp, 0)->slot[0]) == 64, "initial");
	fill(frame, FRAME, 3);
	CHECK(nmport_inject(d, frame, FRAME) == 0, "inject");
	CHECK(ioctl(d->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "the frame");
	CHECK(rx->slot[rx->head].len == FRAME &&
		memcmp(NETMAP_BUF(rx, rx->slot[rx->head].buf_idx), frame, FRAME) == 0, "its content");
	nmport_close(d);
	nmport_close(to);
	nmport_disable_option("offset");
}

static void
option_lists(void)
{
	struct nmreq_option a, b, *o;
	struct nmreq_header h;
	int n = 0;

	memset(&a, 0, sizeof(a));
	b = a;
	a.nro_reqtype = NETMAP_REQ_OPT_CSB;
	b.nro_reqtype = NETMAP_REQ_OPT_OFFSETS;
	nmreq_header_init(&h, NETMAP_REQ_REGISTER, &a);
	CHECK(h.nr_version == NETMAP_API && h.nr_body == (uintptr_t)&a && h.nr_options == 0, "header");
	nmreq_push_option(&h, &a);
	nmreq_push_option(&h, &b);
	nmreq_foreach_option(&h, o) n++;
	CHECK(n == 2 && nmreq_find_option(&h, NETMAP_REQ_OPT_CSB) == &a, "two");
	nmreq_remove_option(&h, &a);
	CHECK(nmreq_find_option(&h, NETMAP_REQ_OPT_CSB) == NULL && nmreq_find_option(&h, NETMAP_REQ_OPT_OFFSETS) == &b, "one");
	CHECK(strcmp(nmreq_option_name(NETMAP_REQ_OPT_EXTMEM), "extmem") == 0, "name");
	h.nr_options = 0;
	nmreq_push_option(&h, nmctx_malloc(nmctx_get(), sizeof(a)));
	nmreq_free_options(&h);
	CHECK(h.nr_options == 0, "freed");
}

static int
parsed(struct nmreq_parse_ctx *p)
{
	char *into = p->token;

	sprintf(into + strlen(into), "[%s|%s]", p->keys[0] ? p->keys[0] : "-", p->keys[1] ? p->keys[1] : "-");
	return 0;
}

static void
custom_options(void)
{
	static struct nmreq_opt_parser flag, multi;
	char seen[256] = "";

	flag.prefix = "flag";
	flag.parse = parsed;
	flag.default_key = -1;
	flag.flags = NMREQ_OPTF_ALLOWEMPTY;
	multi.prefix = "multi";
	multi.parse = parsed;
	multi.default_key = 0;
	multi.nr_keys = 2;
	multi.keys[0].key = "one";
	multi.keys[1].key = "two";
	multi.keys[1].id = 1;
	multi.keys[1].flags = NMREQ_OPTK_ALLOWEMPTY;
	multi.next = &flag;
	CHECK(nmreq_options_decode("@multi=5@flag@multi:two=x,one=y@multi:one=1,two", &multi, seen, nmctx_get()) == 0, "%s", last);
	CHECK(strcmp(seen, "[5|-][-|-][y|x][1|]") == 0, "'%s'", seen);
	CHECK(nmreq_options_decode("@other=1", &multi, seen, nmctx_get()) < 0, "unknown option");
	CHECK(nmreq_options_decode("@multi:one", &multi, seen, nmctx_get()) < 0, "needs a value");
	CHECK(nmreq_options_decode("@multi:one=1,one=2", &multi, seen, nmctx_get()) < 0, "twice");
	flag.flags |= NMREQ_OPTF_DISABLED;
	CHECK(nmreq_options_decode("@flag", &multi, seen, nmctx_get()) < 0 && errno == EOPNOTSUPP, "disabled");
}

/* Ordinary names, and the name of a switch for programs that only accept `vale...`. */
static void
people(void)
{
	struct nmport_d *one = nmport_open("lan:'web-1'"), *other;

	CHECK(one != NULL && strcmp(one->nifp->ni_name, "lan:web-1") == 0, "%s", last);
	CHECK(nmport_open("valelan:'web-1'/x") == NULL && errno == EBUSY, "by its other name");
	other = nmport_open("valelan:my.port");
	CHECK(other != NULL, "%s", last);
	nmport_close(other);
	nmport_close(one);
}

int
main(int argc, char **argv)
{
	CHECK(argc == 2, "a switch");
	alarm(30);
	contexts();
	names();
	steps(argv[1]);
	extmem(argv[1]);
	offsets(argv[1]);
	people();
	option_lists();
	custom_options();
	CHECK(locks == 0, "locked %d times too often", locks);
	return 0;
}
