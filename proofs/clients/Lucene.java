// An index of texts, and queries on it: `make FOLDER BYTES` or `query FOLDER`.
// Words, texts and queries come from fixed seeds, so what a query prints does not depend on memory.

import java.nio.file.Path;
import java.util.Random;
import org.apache.lucene.analysis.standard.StandardAnalyzer;
import org.apache.lucene.document.Document;
import org.apache.lucene.document.Field;
import org.apache.lucene.document.StoredField;
import org.apache.lucene.document.TextField;
import org.apache.lucene.index.ConcurrentMergeScheduler;
import org.apache.lucene.index.DirectoryReader;
import org.apache.lucene.index.IndexWriter;
import org.apache.lucene.index.IndexWriterConfig;
import org.apache.lucene.index.Term;
import org.apache.lucene.index.TieredMergePolicy;
import org.apache.lucene.search.BooleanClause;
import org.apache.lucene.search.BooleanQuery;
import org.apache.lucene.search.IndexSearcher;
import org.apache.lucene.search.TermQuery;
import org.apache.lucene.store.MMapDirectory;

public class Lucene {
    static final int WORDS = 200_000;

    // Small numbers are drawn much more often.
    static String word(Random random) {
        return "w" + (int) (WORDS * Math.pow(random.nextDouble(), 4));
    }

    static void make(Path folder, long bytes) throws Exception {
        // One file for all: a single segment, as a compound file.
        var merge = new TieredMergePolicy();
        merge.setNoCFSRatio(1.0);
        merge.setMaxCFSSegmentSizeMB(Double.POSITIVE_INFINITY);
        var config = new IndexWriterConfig(new StandardAnalyzer()).setMergePolicy(merge);
        config.setMergeScheduler(new ConcurrentMergeScheduler());
        var random = new Random(1);
        var pad = new byte[1024];
        try (var writer = new IndexWriter(new MMapDirectory(folder), config)) {
            // A text takes about as much in the index.
            for (long document = 0; document < bytes / 1750; document++) {
                var text = new StringBuilder();
                for (int i = 0; i < 250; i++) {
                    text.append(word(random)).append(' ');
                }
                random.nextBytes(pad);
                var fields = new Document();
                fields.add(new TextField("text", text.toString(), Field.Store.NO));
                fields.add(new StoredField("pad", pad.clone()));
                writer.addDocument(fields);
            }
            writer.forceMerge(1);
        }
    }

    static void query(Path folder) throws Exception {
        try (var reader = DirectoryReader.open(new MMapDirectory(folder))) {
            var searcher = new IndexSearcher(reader);
            var random = new Random(2);
            long sum = 0;
            for (int i = 0; i < 20_000; i++) {
                var both = new BooleanQuery.Builder();
                both.add(new TermQuery(new Term("text", word(random))), BooleanClause.Occur.MUST);
                both.add(new TermQuery(new Term("text", word(random))), BooleanClause.Occur.SHOULD);
                for (var hit : searcher.search(both.build(), 10).scoreDocs) {
                    var pad = reader.storedFields().document(hit.doc).getBinaryValue("pad");
                    sum = sum * 31 + hit.doc + pad.bytes[pad.offset];
                }
            }
            System.out.println(sum);
        }
    }

    public static void main(String[] arguments) throws Exception {
        var folder = Path.of(arguments[1]);
        if (arguments[0].equals("make")) {
            make(folder, Long.parseLong(arguments[2]));
        } else {
            query(folder);
        }
    }
}
