/* The header-only API: nm_open, nm_inject, nm_dispatch, nm_nextpkt, a shared mapping. Usage: dispatch FROM TO */
#define NETMAP_WITH_LIBS
#include "common.h"

struct seen {
	uint32_t next;
};

static void
callback(u_char *arg, const struct nm_pkthdr *h, const u_char *frame)
{
	struct seen *s = (struct seen *)arg;

	CHECK(h->len == FRAME && h->caplen == FRAME, "length %u", h->len);
	CHECK(seq_of((const char *)frame) == s->next, "frame %u in the place of %u", seq_of((const char *)frame), s->next);
	s->next++;
}

static void
inject(struct nm_desc *d, uint32_t *sent, uint32_t count)
{
	char frame[FRAME];
	uint32_t k;

	for (k = 0; k < count; k++) {
		fill(frame, FRAME, *sent);
		CHECK(nm_inject(d, frame, FRAME) == (int)FRAME, "frame %u", *sent);
		(*sent)++;
	}
	CHECK(ioctl(NETMAP_FD(d), NIOCTXSYNC, NULL) == 0, "txsync");
}

int
main(int argc, char **argv)
{
	struct nm_desc *from, *to, *again;
	struct seen seen = {0};
	struct nm_pkthdr h;
	uint32_t sent = 0, k;
	char name[128], big[5000];

	CHECK(argc == 3, "two ports");
	alarm(30);
	snprintf(name, sizeof(name), "%s%s", strncmp(argv[2], "vale", 4) ? "netmap:" : "", argv[2]);
	to = nm_open(name, NULL, 0, NULL);
	snprintf(name, sizeof(name), "%s%s", strncmp(argv[1], "vale", 4) ? "netmap:" : "", argv[1]);
	from = nm_open(name, NULL, 0, NULL);
	CHECK(IS_NETMAP_DESC(to) && IS_NETMAP_DESC(from), "open");
	/* The same port again, on its parent's mapping: netmap shares unless told otherwise. */
	again = nm_open(name, NULL, NM_OPEN_NO_MMAP, from);
	CHECK(again != NULL && again->mem == from->mem && !again->done_mmap, "a second descriptor");
	CHECK(nm_close(again) == 0, "close");
	CHECK(nm_open(name, NULL, NR_EXCLUSIVE, NULL) == NULL && errno == EBUSY, "not exclusively, it is open");
	CHECK(nm_open("nonsense", NULL, 0, from) == NULL && errno == EINVAL, "not a name");

	for (k = 0; k < 50; k++) {
		inject(from, &sent, 20);
		while (seen.next < sent) {
			CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "frames");
			CHECK(nm_dispatch(to, k & 1 ? 7 : -1, callback, (u_char *)&seen) > 0, "dispatch");
		}
	}
	inject(from, &sent, 10);
	for (k = sent - 10; k < sent;) {
		u_char *frame;

		CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "frames");
		while ((frame = nm_nextpkt(to, &h)) != NULL) {
			CHECK(seq_of((char *)frame) == k, "frame %u", k);
			CHECK(h.d == to && h.slot != NULL && h.buf == frame, "header");
			k++;
		}
	}
	/* The next call returns the last frame. */
	CHECK(nm_nextpkt(to, &h) == NULL, "no more");
	/* A frame of several slots. */
	memset(big, 0x5a, sizeof(big));
	memset(big, 0xff, 6);
	CHECK(nm_inject(from, big, sizeof(big)) == (int)sizeof(big), "5000 bytes");
	CHECK(ioctl(from->fd, NIOCTXSYNC, NULL) == 0, "txsync");
	CHECK(poll_for(to->fd, POLLIN, 5000) & POLLIN, "frames");
	CHECK(nm_nextpkt(to, &h) != NULL && h.len == sizeof(big), "length %u", h.len);
	CHECK(h.caplen < h.len, "more than one slot");
	nm_close(from);
	nm_close(to);
	return 0;
}
