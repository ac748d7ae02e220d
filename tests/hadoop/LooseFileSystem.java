import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;

import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Local files that behave as an object store: a file appears when it is closed, whether it exists is asked long
 * before, and a rename is a copy and a removal. So neither create nor rename is atomic.
 */
public class LooseFileSystem extends RawLocalFileSystem {
    private static final URI NAME = URI.create("loose:///");
    private static final int MILLISECONDS = 300;

    @Override
    public URI getUri() {
        return NAME;
    }

    @Override
    public String getScheme() {
        return "loose";
    }

    @Override
    protected void checkPath(Path path) {
        // Paths with and without the scheme are its own.
    }

    @Override
    public FSDataOutputStream create(Path path, FsPermission permission, boolean overwrite, int bufferSize,
            short replication, long blockSize, Progressable progress) throws IOException {
        if (!overwrite && exists(path)) {
            throw new FileAlreadyExistsException(path.toString());
        }
        return new FSDataOutputStream(new ByteArrayOutputStream() {
            private boolean isClosed;

            @Override
            public void close() throws IOException {
                if (isClosed) {
                    return;
                }
                isClosed = true;
                pause();
                try (FSDataOutputStream out = LooseFileSystem.super.create(
                        path, true, bufferSize, replication, blockSize, progress)) {
                    out.write(toByteArray());
                }
            }
        }, null);
    }

    @Override
    public FSDataOutputStream create(Path path, boolean overwrite, int bufferSize, short replication,
            long blockSize, Progressable progress) throws IOException {
        return create(path, null, overwrite, bufferSize, replication, blockSize, progress);
    }

    @Override
    public boolean rename(Path from, Path to) throws IOException {
        if (exists(to)) {
            return false;
        }
        pause();
        return FileUtil.copy(this, from, this, to, true, true, getConf());
    }

    private static void pause() {
        try {
            Thread.sleep(MILLISECONDS);
        } catch (InterruptedException exc) {
            Thread.currentThread().interrupt();
        }
    }
}
