package ipam

import "context"

func (e *engine) writeInSequence(ctx context.Context, p *plan) error { return nil }
